"""Files that decide who spends: only root and the user of this process may be able to change them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.settings.ownership import ChangeableByOthers, read_guarded

SOMEBODY = 4242


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yml"
    path.write_text("policy: {}\n")
    path.chmod(0o644)
    tmp_path.chmod(0o755)
    return path


def test_a_file_that_only_its_owner_changes_is_read(policy: Path) -> None:
    assert read_guarded(policy) == "policy: {}\n"


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646, 0o602])
def test_a_file_that_others_can_write_is_refused_with_the_command_that_mends_it(policy: Path, mode: int) -> None:
    policy.chmod(mode)
    with pytest.raises(ChangeableByOthers, match=rf"mode {mode:04o}.*; run: chmod go-w {policy}$"):
        read_guarded(policy)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_in_which_others_can_replace_the_file_is_refused(policy: Path, mode: int) -> None:
    policy.parent.chmod(mode)
    with pytest.raises(ChangeableByOthers, match=f"chmod go-w {policy.parent}$"):
        read_guarded(policy)


def test_in_a_sticky_folder_only_its_owner_replaces_a_file(policy: Path) -> None:
    policy.parent.chmod(0o1777)
    assert read_guarded(policy)


def test_the_folder_of_a_link_and_of_what_it_names_both_count(policy: Path, tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    link = loose / "policy.yml"
    link.symlink_to(policy)
    assert read_guarded(link)
    loose.chmod(0o777)
    with pytest.raises(ChangeableByOthers, match=str(loose)):
        read_guarded(link)


def test_a_file_of_another_user_is_refused(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = policy.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    if owner == 0:  # Root's file is good for every user.
        assert read_guarded(policy)
        os.chown(policy, SOMEBODY + 1, -1)
    with pytest.raises(ChangeableByOthers, match="belongs to user"):
        read_guarded(policy)
