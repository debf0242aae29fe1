"""Read the git repository that a job names: an https address, and a branch, tag or commit behind `@`."""

from __future__ import annotations

import re
from dataclasses import dataclass

EXAMPLE = "https://github.com/org/project@main"
NO_PASSWORD = f"A repository's address has no user name or password; write repo={EXAMPLE}."
_SHAPE = re.compile(
    r"(https://[A-Za-z0-9][A-Za-z0-9.-]{0,252}(?::\d{1,5})?/[\w./~+-]{1,300}?)(?:@([A-Za-z0-9][\w./-]{0,199}))?",
    re.ASCII,
)
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}", re.ASCII)


class BadRepositoryError(ValueError):
    """The text names no repository that can be fetched; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository: `name` is the last part of its address, and `ref` is "" for its default branch."""

    url: str
    ref: str
    name: str

    @classmethod
    def read(cls, text: str) -> Repository:
        """Read `https://host/org/project@branch`. Raises BadRepositoryError, whose sentence repeats no password."""
        authority = text.partition("://")[2].partition("/")[0]
        if "@" in authority:
            raise BadRepositoryError(NO_PASSWORD)
        found = _SHAPE.fullmatch(text)
        name = found[1].rstrip("/").rpartition("/")[2].removesuffix(".git") if found else ""
        if found is None or ".." in text or not _NAME.fullmatch(name):
            raise BadRepositoryError(f"That is not the https address of a git repository; write repo={EXAMPLE}.")
        return cls(found[1], found[2] or "", name)
