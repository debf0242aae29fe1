"""Which COMMIT of which phase loses its connection: the sets of tables that COMMITs wrote there, each in three ways."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.scenarios.kills.commit_cuts import CommitCuts, Tables, Way
from tests.scenarios.kills.failpoints import Phase

#: How many COMMITs of a phase are cut in one walk.
TOGETHER = 3


class Cut(NamedTuple):
    """The next COMMIT that wrote these tables, and maybe others, and what happens to it."""

    wrote: Tables
    way: Way

    def __str__(self) -> str:
        """Write it for the log."""
        return f"{'+'.join(sorted(self.wrote))}: {self.way}"


@dataclass
class Aim:
    """Tells the proxy of one walk which COMMITs it cuts, each once, and notes what it saw in each phase."""

    plan: Mapping[Phase, Collection[Cut]]
    made: list[tuple[Phase, Cut]] = field(default_factory=list)
    seen: set[tuple[Phase, Tables]] = field(default_factory=set)
    _phase: Phase | None = None
    _done: set[tuple[Phase, Cut]] = field(default_factory=set)

    def at(self, proxy: CommitCuts) -> None:
        """Choose for this proxy from now on."""
        proxy.choose = self._choose

    def phase(self, phase: Phase | None) -> None:
        """Aim at the COMMIT of this phase from now on; None: at no more."""
        self._phase = phase

    def _choose(self, wrote: Tables) -> Way | None:
        if self._phase is None:
            return None
        phase = self._phase
        self.seen.add((phase, wrote))
        for planned in self.plan.get(phase, ()):
            if planned.wrote <= wrote and (phase, planned) not in self._done:
                self._done.add((phase, planned))
                self.made.append((phase, Cut(wrote, planned.way)))
                return planned.way
        return None


@dataclass
class CutRota:
    """Which COMMIT is next in each phase: those that were cut least often come first."""

    tries: Counter[tuple[Phase, Cut]] = field(default_factory=Counter)
    cuts: Counter[tuple[Phase, Cut]] = field(default_factory=Counter)
    _seen: set[tuple[Phase, Tables]] = field(default_factory=set)

    def plan(self) -> dict[Phase, list[Cut]]:
        """Choose some COMMITs for each phase."""
        return {phase: self._next(phase) for phase in Phase}

    def _next(self, phase: Phase) -> list[Cut]:
        known = [wrote for at, wrote in self._ordered() if at is phase] or [frozenset()]
        # What writes many tables at once is a step of a rental; what writes one is often housekeeping.
        known.sort(key=lambda wrote: -len(wrote))
        cuts = [Cut(wrote, way) for way, wrote in itertools.product(Way, known)]
        chosen = sorted(cuts, key=lambda cut: self.tries[phase, cut])[:TOGETHER]
        self.tries.update((phase, cut) for cut in chosen)
        return chosen

    def learn(self, aim: Aim) -> None:
        """Take in what a walk saw and cut."""
        self._seen |= aim.seen
        self.cuts.update(aim.made)

    def table(self) -> str:
        """Write what was cut where."""
        rows: list[str] = []
        for phase, wrote in self._ordered():
            numbers = (str(self.cuts[phase, Cut(wrote, way)]) for way in Way)
            rows.append(f"| {phase} | {', '.join(sorted(wrote))} | {' | '.join(numbers)} |")
        return "\n".join([f"| Phase | Tables written | {' | '.join(Way)} |", "|---|---|---:|---:|---:|", *rows])

    def _ordered(self) -> list[tuple[Phase, Tables]]:
        return sorted(self._seen, key=lambda one: (list(Phase).index(one[0]), sorted(one[1])))
