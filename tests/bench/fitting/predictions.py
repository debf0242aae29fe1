"""Write `docs/predictions.csv`: published rates beside what was predicted for them without any row of their stack.

`GPU_SHOPPER_DATA=../shared/data python -m tests.bench.fitting.predictions`; `--print` shows the file instead. The
layout of a run is free, as users describe it. llm-foundry's runs are predicted without the rows of their model.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bot.rules.plans.predictions import Prediction, coverage, table
from tests.bench.throughput_accept import Answer, models_left_out, stacks_left_out
from tests.bench.throughput_data import folder
from tests.bench.throughput_fit import all_rates, physics

TARGET = Path("docs/predictions.csv")


def predictions(data: Path) -> list[Prediction]:
    """Every published rate with its prediction, in the order of time, source and run."""
    rates = all_rates(data)
    found = [*stacks_left_out(rates, physics(data, rates)), *models_left_out(data, rates)]
    return sorted(_rows(found), key=lambda row: (row.date, row.source, row.model, row.gpu, row.gpus, row.measured))


def _rows(answers: Sequence[Answer]) -> Iterator[Prediction]:
    for one in answers:
        rate, predicted, wide = one.rate, one.rate.tokens_s * math.exp(-one.log), math.exp(one.half)
        stated = (predicted, predicted / wide, predicted * wide)
        yield Prediction.of(
            rate.work,
            rate.gpu.name,
            rate.count,
            stated,
            rate.tokens_s,
            date=str(rate.year),
            source=rate.source,
            stack=rate.stack,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, and print how many rows are inside the stated range."""
    parser = argparse.ArgumentParser(description="Write published rates beside their predictions.")
    parser.add_argument("--print", action="store_true", dest="shown", help="print the file instead")
    rows = predictions(folder())
    if parser.parse_args(arguments).shown:
        sys.stdout.write(table(rows))
    else:
        TARGET.write_text(table(rows))
    sys.stderr.write(f"{coverage(rows)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
