"""Published rates as workloads of this project: the rows of the tree, and those of the folder that the variable names.

A row without a stack in its words belongs to its source (`OF_SOURCE`): both are what leaving a stack out leaves out.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from bot.rules.jobs.work_words import parse
from bot.rules.sizing.workload import Architecture, Workload, architecture
from providers.gpus.table import GPUS, GpuModel
from tests.bench.throughput_data import FILE, load

TREE = Path(__file__).with_name("throughput_rows.csv")
PUBLISHED = Path("throughput") / "published.csv"
#: How the source of a row of `PUBLISHED` begins → the stack that ran it, and the year of the measurement.
OF_SOURCE = {
    "nanochat": ("nanochat", 2026),
    "llm.c": ("llm.c", 2024),
    "nanoGPT": ("nanogpt", 2023),
    "debtirthasaha": ("pytorch", 2026),
    "torchtitan": ("torchtitan", 2024),
    "Megatron-Bridge": ("megatron", 2025),
    "Llama-2": ("meta", 2023),
    "Llama-3": ("meta", 2024),
    "Giles": ("pytorch", 2025),
    "torchtune": ("torchtune", 2024),
    "llama.cpp": ("llama.cpp", 2023),
    "vLLM": ("vllm", 2026),
}


@dataclass(frozen=True, slots=True, eq=False)
class Rate:
    """One published rate. `stack` is the group that is left out together, whether the words name it or not."""

    work: Workload
    shape: Architecture
    gpu: GpuModel
    count: int
    tokens_s: float
    stack: str
    year: int
    group: str
    source: str
    judged: bool = False


def of_tree() -> list[Rate]:
    """The rows of this repository."""
    with TREE.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return [_rate(cells, cells["stack"], int(cells["year"]), judged=False) for cells in rows]


def published(folder: Path) -> list[Rate]:
    """The rows of `PUBLISHED`, which the acceptance judges."""
    found = []
    with (folder / PUBLISHED).open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for cells in rows:
        stack, year = next(known for start, known in OF_SOURCE.items() if cells["source"].startswith(start))
        found.append(_rate(cells, stack, year, judged=True))
    return found


def foundry(folder: Path) -> list[Rate]:
    """The runs of llm-foundry, their layout not given."""
    return [
        Rate(
            work=free(row.work),
            shape=row.shape,
            gpu=row.gpu,
            count=row.count,
            tokens_s=row.tokens_s,
            stack="llm-foundry",
            year=2024,
            group=row.model,
            source="mosaicml/llm-foundry",
        )
        for row in load(folder / FILE)
    ]


def free(work: Workload) -> Workload:
    """The run as users describe it: nobody gave its micro batch, its sharding or its recomputation."""
    return replace(work, micro_batch=None, sharding=None, checkpointing=None)


def _rate(cells: dict[str, str], stack: str, year: int, *, judged: bool) -> Rate:
    work = parse(cells["words"])
    filled = architecture(work)
    assert filled is not None
    return Rate(
        work=free(work),
        shape=filled,
        gpu=GPUS[cells["gpu"]],
        count=int(cells["gpus"]),
        tokens_s=float(cells["tokens_per_s"]),
        stack=stack,
        year=year,
        group=cells["group"],
        source=cells["source"],
        judged=judged,
    )
