"""The git repository of a job: what is taken, and each mistake by its sentence."""

from __future__ import annotations

import pytest

from bot.rules.values.repository import BadRepositoryError, Repository


@pytest.mark.parametrize(
    ("text", "url", "ref", "name"),
    [
        ("https://github.com/org/project", "https://github.com/org/project", "", "project"),
        ("https://github.com/org/project.git@v1.2", "https://github.com/org/project.git", "v1.2", "project"),
        ("https://git.example.com:8443/a/b/@feature/x", "https://git.example.com:8443/a/b/", "feature/x", "b"),
    ],
)
def test_an_address_with_a_branch_or_without(text: str, url: str, ref: str, name: str) -> None:
    assert Repository.read(text) == Repository(url, ref, name)


@pytest.mark.parametrize(
    "text",
    [
        "http://github.com/org/project",
        "git@github.com:org/project",
        "https://github.com/",
        "https://github.com/org/..",
        "https://github.com/org/project@--upload-pack=x",
        "https://github.com/org/$(id)",
        "https://github.com/org/-x",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadRepositoryError, match="is not the https address of a git repository; write repo=https://"):
        Repository.read(text)


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadRepositoryError, match="no user name or password") as found:
        Repository.read("https://ada:canary@github.com/org/project")
    assert "canary" not in str(found.value)
