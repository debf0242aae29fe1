"""Set what was predicted beside what was measured: rows without names of people, teams or models of their own.

A model is given by its numbers, and by its name only where that is in the public table. A stack is named only where
published runs name it. So the rows can be shown to anybody.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Self

from bot.rules.sizing import throughput_fitted as fitted
from bot.rules.sizing.model_shapes import MODELS
from bot.rules.sizing.workload import Workload, architecture
from bot.rules.values.phrases import plural

#: The range is meant to hold this share of all runs.
MEANT = 0.8
_BILLION = 10**9
#: What stands for a number that nobody said.
_UNSAID = "-"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Hold one run in the order of the columns. Rates are tokens per second over all GPUs; `inside` is yes or no."""

    date: str
    gpu: str
    gpus: int
    model: str
    method: str
    precision: str
    seq: str
    batch: str
    stack: str
    predicted: str
    low: str
    high: str
    measured: str
    inside: str
    source: str

    @classmethod
    def of(
        cls,
        work: Workload,
        gpu: str,
        gpus: int,
        rates: tuple[float, float, float],
        measured: float,
        *,
        date: str,
        source: str,
        stack: str | None = None,
    ) -> Self:
        """Describe a run whose expected rate, low and high ends were `rates`; `stack` where the run names none."""
        said = [_rate(one) for one in (*rates, measured)]
        # As a reader of the rounded numbers judges it.
        expected, low, high, reached = said
        return cls(
            date=date,
            gpu=gpu,
            gpus=gpus,
            model=_model(work),
            method=str(work.kind),
            precision=str(work.precision or _UNSAID),
            seq=str(work.seq or _UNSAID),
            batch=str((work.global_batch if work.trains else work.concurrency) or _UNSAID),
            stack=_stack(work.stack or stack),
            predicted=expected,
            low=low,
            high=high,
            measured=reached,
            inside="yes" if float(low) <= float(reached) <= float(high) else "no",
            source=source,
        )

    @property
    def error(self) -> float:
        """Return by which share the prediction missed the measured rate."""
        return abs(float(self.predicted) / float(self.measured) - 1)


COLUMNS = tuple(one.name for one in fields(Prediction))


def table(rows: Iterable[Prediction]) -> str:
    """Write the rows as CSV, with their names first."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(asdict, rows))
    return out.getvalue()


def read(text: str) -> list[Prediction]:
    """Read what `table` wrote."""
    rows = csv.DictReader(io.StringIO(text))
    return [Prediction(gpus=int(row.pop("gpus")), **row) for row in rows]


def coverage(rows: Sequence[Prediction]) -> str:
    """Say how many of the runs were inside their stated range, and how far off the predictions were."""
    if not rows:
        return "No run with a stated range is recorded yet."
    inside = sum(row.inside == "yes" for row in rows)
    miss = median(row.error for row in rows)
    return (
        f"{inside} of {plural(len(rows), 'run')} ({inside / len(rows):.0%}) were inside the stated range, "
        f"which is meant to hold {MEANT:.0%}. The median error was {miss:.0%}."
    )


def _model(work: Workload) -> str:
    shape = architecture(work)
    if shape is None:
        return _UNSAID
    size = f"{shape.total_params / _BILLION:.3g}B"
    name = work.model if work.model in MODELS else ""
    return " ".join(filter(None, (name, size, f"{shape.layers}x{shape.width}")))


def _stack(name: str | None) -> str:
    known = {*fitted.TRAINING_STACKS, *fitted.DECODING_STACKS}
    return name if name in known else "other" if name else _UNSAID


def _rate(number: float) -> str:
    return f"{number:.4g}" if number < 1000 else f"{number:.0f}"
