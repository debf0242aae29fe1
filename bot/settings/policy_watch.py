"""Notice edits of the policy file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bot.settings.policy_file import PolicyFile, read_policy_file

#: What tells one state of the file from another: its inode, size and time of change; None while it is missing.
Stamp = tuple[int, int, int] | None


@dataclass
class PolicyWatch:
    """Say when the policy file was edited. A broken edit is reported once and changes nothing."""

    path: Path | None
    practice: bool = False
    _seen: Stamp = field(init=False)

    def __post_init__(self) -> None:
        """Take the file as it is now for known."""
        self._seen = self._stamp()

    def edited(self) -> PolicyFile | None:
        """Return the file after an edit, None while there is none. Raises `PolicyFileError` once for a broken edit."""
        stamp = self._stamp()
        if stamp == self._seen:
            return None
        self._seen = stamp
        return read_policy_file(self.path, practice=self.practice)

    def _stamp(self) -> Stamp:
        if self.path is None:
            return None
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
