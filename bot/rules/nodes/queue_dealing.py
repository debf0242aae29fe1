"""Deal the commands of one queue to several machines, so that none runs on two of them.

A command belongs to a machine from the moment it is dealt to it. It is dealt again only when that machine is over:
then nothing can run there, and no result can come from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

#: A machine has so many commands for each GPU: one that runs, and one that begins before the next check-in.
AHEAD = 2


@dataclass(frozen=True, slots=True)
class Dealt:
    """Describe a queue that is dealt: how many commands it has, their results, and to which machines they went.

    `claims` has for each command the machines that it was dealt to, in that order. `over` are the machines that are
    proved gone, or that never were. `shared_by` is how many machines may still take commands.
    """

    total: int
    results: Collection[int]
    claims: Mapping[int, Sequence[str]]
    over: Collection[str]
    shared_by: int = 1

    def holder(self, number: int) -> str | None:
        """Return the machine that a command without a result belongs to; None where it may be dealt."""
        held = self.claims.get(number, ())
        return held[-1] if held and held[-1] not in self.over and number not in self.results else None

    @property
    def unfinished(self) -> list[int]:
        """Return the commands without a result, in their order."""
        return [number for number in range(1, self.total + 1) if number not in self.results]

    @property
    def free(self) -> list[int]:
        """Return the commands that belong to no machine, in their order."""
        return [number for number in self.unfinished if self.holder(number) is None]

    def held_by(self, machine: str) -> list[int]:
        """Return the commands without a result that belong to a machine, in their order."""
        return [number for number in self.unfinished if self.holder(number) == machine]

    def next_for(self, machine: str, gpus: int) -> list[int]:
        """Return the commands to deal to a machine now.

        None of its GPUs waits while a command is free. What runs later is shared evenly, so that no machine waits for
        another one's stock at the end.
        """
        free, held = self.free, len(self.held_by(machine))
        share = -(-len(free) // max(self.shared_by, 1))
        wanted = max(gpus - held, min(share, AHEAD * gpus - held))
        return free[: max(wanted, 0)]

    def is_idle(self, machine: str, working: Collection[str]) -> bool:
        """Whether no command is left for a machine: each unfinished one belongs to another that is `working`.

        A command whose machine fails may come back, so a machine waits for those of machines that are not.
        """
        return all(self.holder(number) in working and self.holder(number) != machine for number in self.unfinished)
