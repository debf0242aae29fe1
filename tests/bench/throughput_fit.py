"""Fit the throughput model and write `bot/rules/sizing/throughput_fitted.py`.

`GPU_SHOPPER_DATA=../shared/data python -m tests.bench.throughput_fit`; `--print` shows the file instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bot.rules.sizing.groups import Group
from bot.rules.sizing.throughput_features import LAST_YEAR, is_data_center
from bot.rules.sizing.training import TERMS
from tests.bench.fitting.model import (
    GPU,
    Physics,
    decoding_terms,
    effects,
    own_spread,
    seen_stacks,
    spreads,
    unseen_models,
    unseen_stacks,
)
from tests.bench.fitting.pooled import Pooled
from tests.bench.fitting.rows import Rate, foundry, of_tree, published
from tests.bench.throughput_check import chosen, fitted, prepare
from tests.bench.throughput_data import FILE, folder, load

TARGET = Path("bot/rules/sizing/throughput_fitted.py")
_HEAD = '''"""Hold what was fitted on published runs. Written by `python -m tests.bench.throughput_fit`; do not edit.

Sources: the rows of `tests/bench/fitting/throughput_rows.csv`, each with its address; 107 rows of mosaicml/llm-foundry
(scripts/train/benchmarking/README.md @8c8dd48, Apache-2.0); 40 published rates of twelve stacks. How the fit works and
how good it is: docs/estimates.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.rules.sizing.groups import Group


@dataclass(frozen=True, slots=True)
class Exponents:
    """Hold the exponents that inner cross-validation chose, not a person who looked at the result.

    `head` is how much attention slows down with narrow heads: (128 / head width) to that power. `waiting` is how the
    wait for the slowest of several machines grows: log2(machines) to that power.
    """

    head: float
    waiting: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Hold the deviation of the logarithm for a stack with published runs, and for any other."""

    known_stack: float
    other_stack: float


'''


def all_rates(data: Path) -> list[Rate]:
    """Every row that the fit uses."""
    return [*foundry(data), *published(data), *of_tree()]


def physics(data: Path, rates: Sequence[Rate]) -> Physics:
    """The weights of the physical terms, from all rows."""
    rows = prepare([row for row in load(data / FILE) if not row.is_fp8])
    choice = chosen(rows)
    training = dict(zip(TERMS, fitted(rows, choice), strict=True))
    return Physics(training, choice.exponents, decoding_terms([one for one in rates if not one.work.trains]))


def model_folds(data: Path, rates: Sequence[Rate]) -> dict[str, Physics]:
    """For each model of llm-foundry, the weights of the physical terms without its rows."""
    rows = prepare([row for row in load(data / FILE) if not row.is_fp8])
    generation = decoding_terms([one for one in rates if not one.work.trains])
    found = {}
    for name in sorted({row.model for row in rows}):
        kept = [row for row in rows if row.model != name]
        choice = chosen(kept)
        training = dict(zip(TERMS, fitted(kept, choice), strict=True))
        found[name] = Physics(training, choice.exponents, generation)
    return found


def _table(name: str, kind: str, values: Mapping[str, float]) -> str:
    lines = "".join(f'    "{key}": {value:.4g},\n' for key, value in values.items())
    return f"{name}: Mapping[str, {kind}] = {{\n{lines}}}\n"


def _of_types(found: Pooled, *, types: bool) -> dict[str, float]:
    return {name.removeprefix(GPU): one for name, one in found.effects.items() if name.startswith(GPU) is types}


def _measured_on(rates: Sequence[Rate]) -> list[tuple[str, tuple[bool, ...]]]:
    names = sorted({one.stack for one in rates})
    return [(name, tuple(sorted({is_data_center(one.gpu) for one in rates if one.stack == name}))) for name in names]


def _in_its_year(found: Pooled, rates: Sequence[Rate]) -> dict[str, float]:
    latest = {name: max(one.year for one in rates if one.stack == name) for name in found.groups}
    since = {name: min(year, LAST_YEAR) - LAST_YEAR for name, year in latest.items()}
    return {name: effect + found.effects["year"] * since[name] for name, effect in found.groups.items()}


def written(data: Path) -> str:
    """The text of the module."""
    rates = all_rates(data)
    weights = physics(data, rates)
    found = effects(rates, weights)
    other, known = spreads(unseen_stacks(rates, weights)), spreads(seen_stacks(rates, weights))
    text = _HEAD + f"EXPONENTS = Exponents(head={weights.exponents.head}, waiting={weights.exponents.waiting})\n"
    text += _table("TRAINING_TERMS", "float", weights.training) + _table("DECODING_TERMS", "float", weights.decoding)
    text += "#: feature → its effect on the logarithm of the rate\n"
    text += _table("TRAINING_EFFECTS", "float", _of_types(found.training, types=False))
    text += _table("DECODING_EFFECTS", "float", _of_types(found.decoding, types=False))
    text += "#: GPU type → its effect on the logarithm of the rate\n"
    text += _table("TRAINING_GPUS", "float", _of_types(found.training, types=True))
    text += _table("DECODING_GPUS", "float", _of_types(found.decoding, types=True))
    text += "#: stack → its effect on the logarithm of the rate, in the latest year that it was measured\n"
    text += _table("TRAINING_STACKS", "float", _in_its_year(found.training, [one for one in rates if one.work.trains]))
    generated = [one for one in rates if not one.work.trains]
    text += _table("DECODING_STACKS", "float", _in_its_year(found.decoding, generated))
    lines = "".join(
        f"    Group.{one.name}: Spread({min(known[one], other[one]):.3f}, {other[one]:.3f}),\n" for one in Group
    )
    text += "#: stack → whether the GPUs that it was measured on are of the data center\n"
    kinds = "".join(f'    "{name}": {of},\n' for name, of in _measured_on(rates))
    text += f"MEASURED_ON: Mapping[str, tuple[bool, ...]] = {{\n{kinds}}}\n"
    text += f"SPREADS: Mapping[Group, Spread] = {{\n{lines}}}\n"
    own = own_spread(unseen_models(model_folds(data, rates), rates))
    text += "#: stacks with so many rows that they have a spread of their own, on GPUs of the data center\n"
    text += _table("OWN_SPREADS", "float", {"llm-foundry": own})
    names = "".join(f'        "{name}",\n' for name in sorted({one.gpu.name for one in rates}))
    text += f"#: GPU types with a row\nGPUS = frozenset(\n    [\n{names}    ]\n)\n"
    trained = sum(one.work.trains for one in rates)
    return (
        text
        + f"#: whether a run trains → rows behind the fit\nROWS = {{True: {trained}, False: {len(rates) - trained}}}\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or print the module."""
    parser = argparse.ArgumentParser(description="Fit the throughput model on published rates.")
    parser.add_argument("--print", action="store_true", dest="shown", help="print the module instead of writing it")
    text = written(folder())
    if parser.parse_args(arguments).shown:
        sys.stdout.write(text)
    else:
        TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
