"""Describe a queue of commands as a start-up plan hands it to the agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bot.wire.codec import spec

MOST_COMMANDS: Final = 1000
#: How often a command is started at most.
MOST_ATTEMPTS: Final = 10


@dataclass(frozen=True)
class PlannedQueue:
    """The commands of a job's queue that are left, by their numbers, and how many are done or failed already."""

    commands: tuple[tuple[int, str], ...] = spec("The commands that are left.")
    gpus: int = spec("How many GPUs run them, one each.")
    done: int = spec("How many earlier machines did.", 0, always=True)
    failed: int = spec("How many failed there.", 0, always=True)
    dealt_of: int = spec(
        "How many commands the whole queue has, where answers deal them to several machines; else 0.", 0
    )

    @property
    def texts(self) -> dict[int, str]:
        """The commands by their numbers."""
        return dict(self.commands)
