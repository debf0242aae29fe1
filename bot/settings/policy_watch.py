"""Notice edits of the policy file."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from bot.settings.policy_file import PolicyFile, PolicyFileError, read_policy_file

#: What tells one state of the file from another: its inode, size, time of change, owner and mode; None while missing.
Stamp = tuple[int, ...] | None


@dataclass
class PolicyWatch:
    """Say when the policy file was edited. A broken edit is reported once and changes nothing."""

    path: Path | None
    practice: bool = False
    _seen: tuple[Stamp, ...] = field(init=False)
    _beside: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        """Take the file, and those that it names, as they are now for known."""
        with contextlib.suppress(PolicyFileError):
            self._beside = read_policy_file(self.path, practice=self.practice).beside
        self._seen = self._stamps()

    def edited(self) -> PolicyFile | None:
        """Return the file after an edit, None while there is none. Raises `PolicyFileError` once for a broken edit."""
        stamps = self._stamps()
        if stamps == self._seen:
            return None
        self._seen = stamps
        found = read_policy_file(self.path, practice=self.practice)
        if found.beside != self._beside:
            self._beside = found.beside
            self._seen = self._stamps()
        return found

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(_stamp(path) for path in (self.path, *self._beside) if path is not None)


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_uid, found.st_mode
