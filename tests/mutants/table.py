"""What a comparison found, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.mutants.draw import Mutant
from tests.mutants.suites import Row


@dataclass
class Found:
    """How the mutants of an area ended in both suites."""

    pool: int
    drawn: list[Mutant]
    old: dict[str, Row]
    new: dict[str, Row]

    def killed(self, rows: Mapping[str, Row]) -> int:
        """How many of the drawn ones a suite kills."""
        return sum(rows[mutant.name]["outcome"] == "killed" for mutant in self.drawn)

    def with_outcomes(self, old: Sequence[str], new: Sequence[str]) -> list[Mutant]:
        """The mutants that ended so."""
        both = ((mutant, self.old[mutant.name], self.new[mutant.name]) for mutant in self.drawn)
        return [mutant for mutant, before, now in both if before["outcome"] in old and now["outcome"] in new]

    @property
    def lost(self) -> list[Mutant]:
        """What the old suite kills and the new one does not."""
        return self.with_outcomes(["killed"], ["survived", "open", "broken"])


def table(found: Mapping[str, Found]) -> list[str]:
    """The table for people, and the names of what was lost."""
    lines = [f"{'area':<26}{'mutants':>8}{'drawn':>7}{'killed by old':>15}{'by new':>8}{'by old only':>13}"]
    for area, one in found.items():
        old, new = one.killed(one.old), one.killed(one.new)
        lines.append(f"  {area:<24}{one.pool:>8}{len(one.drawn):>7}{old:>15}{new:>8}{len(one.lost):>13}")
    for one in found.values():
        for mutant in one.lost:
            lines += [f"  lost: {mutant.name}", f"      {mutant.diff}", f"      killed by {one.old[mutant.name]['by']}"]
    return lines


def survivors(found: Mapping[str, Found]) -> list[str]:
    """What neither suite kills; `open` where the budget of a mutant ended before its tests did."""
    lines = []
    for one in found.values():
        for mutant in one.with_outcomes(["survived", "open", "broken"], ["survived", "open", "broken"]):
            old, new = one.old[mutant.name]["outcome"], one.new[mutant.name]["outcome"]
            lines.append(f"{mutant.name}  old: {old}, new: {new}  {mutant.diff}")
    return lines
