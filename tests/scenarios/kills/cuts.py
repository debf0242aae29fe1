"""Which COMMIT of which phase loses its connection: the sets of tables that COMMITs wrote there, each in three ways."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.scenarios.kills.failpoints import Phase
from tests.support.commit_cuts import CommitCuts, Tables, Way


class Cut(NamedTuple):
    """The next COMMIT that wrote these tables, and what happens to it. None: whatever it wrote."""

    wrote: Tables | None
    way: Way

    def __str__(self) -> str:
        """Write it for the log."""
        return f"{'+'.join(sorted(self.wrote or {'anything'}))}: {self.way}"


@dataclass
class Aim:
    """Tells the proxy of one walk which COMMIT is next, and notes what it saw in each phase."""

    plan: Mapping[Phase, Cut]
    made: dict[Phase, Cut] = field(default_factory=dict)
    seen: set[tuple[Phase, Tables]] = field(default_factory=set)
    _phase: Phase | None = None

    def at(self, proxy: CommitCuts) -> None:
        """Choose for this proxy from now on."""
        proxy.choose = self._choose

    def phase(self, phase: Phase | None) -> None:
        """Aim at the COMMIT of this phase from now on; None: at no more."""
        self._phase = phase

    def _choose(self, wrote: Tables) -> Way | None:
        if self._phase is None:
            return None
        self.seen.add((self._phase, wrote))
        cut = self.plan.get(self._phase)
        if cut is None or self._phase in self.made or cut.wrote not in (None, wrote):
            return None
        self.made[self._phase] = Cut(wrote, cut.way)
        return cut.way


@dataclass
class CutRota:
    """Which COMMIT is next in each phase: those that were cut least often come first."""

    tries: Counter[tuple[Phase, Cut]] = field(default_factory=Counter)
    cuts: Counter[tuple[Phase, Cut]] = field(default_factory=Counter)
    _seen: set[tuple[Phase, Tables]] = field(default_factory=set)

    def plan(self) -> dict[Phase, Cut]:
        """Choose a COMMIT for each phase."""
        return {phase: self._next(phase) for phase in Phase}

    def _next(self, phase: Phase) -> Cut:
        known: list[Tables | None] = [wrote for at, wrote in self._ordered() if at is phase] or [None]
        cuts = [Cut(wrote, way) for wrote, way in itertools.product(known, Way)]
        chosen = min(cuts, key=lambda cut: self.tries[phase, cut])
        self.tries[phase, chosen] += 1
        return chosen

    def learn(self, aim: Aim) -> None:
        """Take in what a walk saw and cut."""
        self._seen |= aim.seen
        self.cuts.update(aim.made.items())

    def table(self) -> str:
        """Write what was cut where."""
        rows: list[str] = []
        for phase, wrote in self._ordered():
            numbers = (str(self.cuts[phase, Cut(wrote, way)]) for way in Way)
            rows.append(f"| {phase} | {', '.join(sorted(wrote))} | {' | '.join(numbers)} |")
        return "\n".join([f"| Phase | Tables written | {' | '.join(Way)} |", "|---|---|---:|---:|---:|", *rows])

    def _ordered(self) -> list[tuple[Phase, Tables]]:
        return sorted(self._seen, key=lambda one: (list(Phase).index(one[0]), sorted(one[1])))
