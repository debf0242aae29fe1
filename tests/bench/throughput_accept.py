"""Judge the estimates as users get them: the layout is free, and the stack of each row was left out of the fit.

`GPU_SHOPPER_DATA=../shared/data python -m tests.bench.throughput_accept [--rows]`. A row's whole stack is left out (a
row that names none: its source's), the weights, the effects and the width of the range come from the other stacks, and
the range is checked against the measured rate. llm-foundry's runs are predicted without the rows of their model.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bot.rules.sizing.groups import Group
from tests.bench.fitting.model import (
    Error,
    Physics,
    error,
    own_spread,
    spreads,
    unseen_models,
    unseen_stacks,
    without,
)
from tests.bench.fitting.rows import Rate
from tests.bench.throughput_data import folder
from tests.bench.throughput_fit import all_rates, model_folds, physics

SIGMAS = 1.2816


@dataclass(frozen=True, slots=True)
class Answer:
    """One row, how far its estimate was off, and the range around the estimate as a logarithm."""

    rate: Rate
    log: float
    half: float
    group: Group

    @property
    def miss(self) -> float:
        """The relative error of the estimate."""
        return abs(math.exp(-self.log) - 1)

    @property
    def holds(self) -> bool:
        """Whether the range holds the measured rate."""
        return abs(self.log) <= self.half


def _answer(found: Error, sigma: float) -> Answer:
    return Answer(found.rate, found.log, SIGMAS * sigma, found.group)


def stacks_left_out(rates: Sequence[Rate], weights: Physics) -> list[Answer]:
    """Every row of the tree and of the judged table, predicted without its stack; the spread is others' as well."""
    found = []
    for stack in sorted({one.stack for one in rates} - {"llm-foundry"}):
        narrowed, pooled = without(rates, frozenset([stack]), weights)
        widths = spreads(unseen_stacks(rates, weights, frozenset([stack])))
        for one in rates:
            if one.stack == stack:
                miss = error(one, narrowed, pooled, stack=False)
                found.append(_answer(miss, widths[miss.group]))
    return found


def models_left_out(data: Path, rates: Sequence[Rate]) -> list[Answer]:
    """llm-foundry's runs with a free layout, each without the rows of its model; the width is the other models'."""
    errors = unseen_models(model_folds(data, rates), rates)
    found = []
    for one in errors:
        others = [other for other in errors if other.rate.group != one.rate.group]
        found.append(_answer(one, own_spread(others)))
    return found


def _line(name: str, answers: Sequence[Answer], aim: str = "") -> str:
    held = sum(one.holds for one in answers)
    misses = sorted(one.miss for one in answers)
    ninety = misses[min(int(0.9 * len(misses)), len(misses) - 1)]
    wide = median(math.exp(2 * one.half) for one in answers)
    return (
        f"  {name:<34}{len(answers):>5}{median(misses):>9.1%}{ninety:>9.1%}"
        f"{held:>6} ({held / len(answers):.0%}){'x':>6}{wide:.2f}  {aim}"
    )


def report(data: Path, *, rows: bool = False) -> Iterator[str]:
    """The lines of the report; the last says whether every aim is met."""
    rates = all_rates(data)
    weights = physics(data, rates)
    left = stacks_left_out(rates, weights)
    judged = [one for one in left if one.rate.judged]
    foundry = models_left_out(data, rates)
    yield f"  {'layout free, stack left out':<34}{'rows':>5}{'median':>9}{'90th':>9}  in range     width"
    yield _line("published.csv", judged, "aim: median <= 15 %, 28 to 37 of 40 in range, width <= x2.5")
    for name in sorted({one.rate.group for one in judged}):
        yield _line(f"    {name}", [one for one in judged if one.rate.group == name])
    yield "  published.csv and the rows of this repository:"
    groups = {name: [one for one in left if one.rate.group == name] for name in sorted({x.rate.group for x in left})}
    for name, found in groups.items():
        yield _line(f"    {name}", found, "aim: >= 60 % in range")
    yield _line("llm-foundry, stack known", foundry, "aim: median <= 5 %, 90th <= 16 %, 70 to 90 % in range")
    if rows:
        for one in sorted(left, key=lambda one: (not one.rate.judged, one.rate.group)):
            inside = "in " if one.holds else "OUT"
            where = f"{one.rate.count} {one.rate.gpu.name}"
            yield f"    {one.log:+.2f} of {one.half:.2f} {inside} {one.rate.stack:<14}{where:<22}{one.rate.source[:60]}"
    yield "  aims met" if _met(judged, list(groups.values()), foundry) else "  aims MISSED"


def _met(judged: Sequence[Answer], groups: Sequence[Sequence[Answer]], foundry: Sequence[Answer]) -> bool:
    held = sum(one.holds for one in judged)
    good = median(one.miss for one in judged) <= 0.15 and 28 <= held <= 37
    good = good and median(math.exp(2 * one.half) for one in judged) <= 2.5
    good = good and all(sum(one.holds for one in found) >= 0.6 * len(found) for found in groups if len(found) >= 10)
    misses = sorted(one.miss for one in foundry)
    inside = sum(one.holds for one in foundry) / len(foundry)
    return good and median(misses) <= 0.05 and misses[int(0.9 * len(misses))] <= 0.16 and 0.7 <= inside <= 0.9


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every aim is met."""
    parser = argparse.ArgumentParser(description="Judge the estimates on published rates.")
    parser.add_argument("--rows", action="store_true", help="print every row")
    lines = list(report(folder(), rows=parser.parse_args(arguments).rows))
    sys.stdout.write("\n".join([*lines, ""]))
    return 0 if lines[-1].endswith("met") else 1


if __name__ == "__main__":
    raise SystemExit(main())
