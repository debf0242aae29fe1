"""Decide whether a command that failed runs again: how often at most, and after which exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RetryPolicy:
    """How often a command is started at most. Without `codes`, each exit code but 0 starts it again."""

    most: int = 1
    codes: tuple[int, ...] = ()

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> RetryPolicy:
        """Read it as a plan has it. Raises TypeError or ValueError for what is none."""
        return cls(int(said.get("attempts", 1)), tuple(map(int, said.get("retry_codes", ()))))

    def to_json(self) -> dict[str, Any]:
        """Write it as a plan has it."""
        return {"attempts": self.most, "retry_codes": list(self.codes)}

    def repeats(self, attempt: int, exit_code: int) -> bool:
        """Whether a command runs again whose attempt with this number ended so; the code is a shell's."""
        return exit_code != 0 and attempt < self.most and (not self.codes or exit_code in self.codes)


#: Whatever its exit code is, it runs once.
ONCE = RetryPolicy()


def shell_code(code: int) -> int:
    """Return an exit code as shells do: 128 and the signal's number where a signal ended the command."""
    return min(128 - code, 255) if code < 0 else code & 255
