"""Published training throughput, read from the folder that GPU_SHOPPER_DATA names, as workloads of this project."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from bot.rules.sizing.model_shapes import MODELS
from bot.rules.sizing.vram import MemoryLayout
from bot.rules.sizing.workload import Architecture, Precision, Sharding, Workload, architecture
from providers.gpus.table import GPUS, GpuModel

VARIABLE = "GPU_SHOPPER_DATA"
FILE = Path("throughput") / "llmfoundry_train.csv"
VOCABULARY = 50368
_GPUS = {"a100_40gb": "A100-SXM-40GB", "a100_80gb": "A100-SXM-80GB", "h100_80gb": "H100-SXM"}
_PRECISIONS = {"bf16": Precision.BF16, "amp_bf16": Precision.AMP_BF16, "amp_fp8": Precision.FP8}
_SHARDINGS = {"FULL_SHARD": Sharding.ZERO3, "SHARD_GRAD_OP": Sharding.ZERO2, "NO_SHARD": Sharding.DDP}


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """One row of the table: what ran, where, and how many tokens per second it made in all. Equal only to itself."""

    model: str
    gpu: GpuModel
    count: int
    work: Workload
    shape: Architecture
    plan: MemoryLayout
    tokens_s: float

    @property
    def is_fp8(self) -> bool:
        """Whether the row is measured in 8 bits, which the fit does not use."""
        return self.work.precision is Precision.FP8


def _named() -> Path:
    return Path(os.environ.get(VARIABLE, "../shared/data"))


def at_hand() -> bool:
    """Whether the data are here."""
    return (_named() / FILE).is_file()


def folder() -> Path:
    """Where the data are. SystemExit with a sentence when the variable is missing or wrong."""
    found = _named()
    if not at_hand():
        raise SystemExit(f"{found / FILE} is not there; set {VARIABLE} to the folder with the published measurements.")
    return found


def load(path: Path) -> list[Measured]:
    """Every row of the table. Layers, width and heads follow the published sizes of MPT, never the table's MFU."""
    with path.open(newline="") as lines:
        return [_row(cells) for cells in csv.DictReader(lines)]


def _row(cells: dict[str, str]) -> Measured:
    shape = MODELS[f"mpt-{cells['Model'].lower()}"]
    work = Workload(
        total_params=int(cells["NumParams"]),
        layers=shape.layers,
        width=shape.width,
        heads=shape.heads,
        vocab=VOCABULARY,
        seq=int(cells["SeqLen (T)"]),
        global_batch=int(cells["GlobalBatchSize"]),
        micro_batch=int(cells["MicroBatchSize"]),
        precision=_PRECISIONS[cells["Precision"]],
        sharding=_SHARDINGS[cells["Sharding Strategy"]],
        checkpointing=cells["Activation Checkpointing"] == "True",
        stack="llm-foundry",
    )
    filled = architecture(work)
    assert filled is not None
    assert work.micro_batch is not None
    assert work.sharding is not None
    return Measured(
        model=cells["Model"],
        gpu=GPUS[_GPUS[cells["GPU"]]],
        count=int(cells["# GPUs"]),
        work=work,
        shape=filled,
        plan=MemoryLayout(work.kind, work.sharding, bool(work.checkpointing), work.micro_batch),
        tokens_s=float(cells["Throughput (T/s)"]),
    )
