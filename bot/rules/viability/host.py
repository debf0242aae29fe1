"""Say what a run needs of its host beside the GPUs: memory and disk.

Memory, in GB per machine. An AdamW in the host's memory keeps 16 bytes per weight there (DeepSpeed's estimate for
ZeRO-Offload: 32-bit weights, two moments, gradients; it advises half more for buffers, which is no reason to refuse).
Weights that GPUs share are loaded whole by the first process (Accelerate, "FSDP: RAM efficient loading"); other
weights are read file by file, and a file of a published checkpoint has up to 10 GB (Transformers, "Big models": the
largest file, `max_shard_size`). The system takes about 2 GB, and so does each process, which is a judgement.

Disk, in GB: the image, the weights, the data and two checkpoints, because the old one is kept until the new one is
written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from bot.rules.sizing.run_time import KEPT_AT_ONCE, checkpoint_gb, weights_gb
from bot.rules.sizing.vram import MemoryLayout, weight_bytes
from bot.rules.sizing.workload import Sharding, WorkKind, Workload, architecture
from providers.contract import Offer

#: GB that an image with CUDA and a framework takes once it is unpacked.
IMAGE_GB = Decimal(20)
_GB = 10**9
_GRADIENT_BYTES = 4
_FILE_GB = 10.0
_PROCESS_GB = 2.0
_SYSTEM_GB = 2.0


@dataclass(frozen=True, slots=True)
class RunDisk:
    """Hold the GB that a run keeps on its disk, part by part."""

    weights: Decimal
    data: Decimal
    checkpoints: Decimal

    @property
    def whole_gb(self) -> int:
        """Return all of it in whole GB, the image included."""
        return math.ceil(IMAGE_GB + self.weights + self.data + self.checkpoints)

    @property
    def sentence(self) -> str:
        """Say what the disk is for: `Disk: 230 GB, for the image (20), weights (14) and two checkpoints (196).`"""
        kept = {"the image": IMAGE_GB, "weights": self.weights, "data": self.data, "two checkpoints": self.checkpoints}
        said = [f"{name} ({math.ceil(size)})" for name, size in kept.items() if size]
        listed = " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))
        return f"The run needs {self.whole_gb:,} GB of disk, for {listed}."


def run_disk(work: Workload) -> RunDisk:
    """Return what a run writes to its disk."""
    shape = architecture(work)
    weights = Decimal(0) if shape is None else weights_gb(shape)
    return RunDisk(weights, work.dataset_gb or Decimal(0), KEPT_AT_ONCE * checkpoint_gb(work))


def host_gb(work: Workload, layout: MemoryLayout, gpus: int) -> Decimal:
    """Return the GB that the host must have for a run in this layout; 0 where the model's size is not known."""
    shape = architecture(work)
    if shape is None:
        return Decimal(0)
    if work.kind is WorkKind.TRAINING:
        loaded = 0.0
    elif work.trains and layout.sharding is Sharding.ZERO3 and gpus > 1:
        loaded = shape.total_params * weight_bytes(layout.weights) / _GB
    else:
        loaded = min(float(weights_gb(shape)), _FILE_GB)
    kept = shape.optimizer_bytes(work.optimizer) + shape.total_params * _GRADIENT_BYTES
    offloaded = kept / _GB if layout.offload else 0.0
    return Decimal(f"{loaded + offloaded + _PROCESS_GB * gpus + _SYSTEM_GB:.3f}")


def too_little(offer: Offer, needed_gb: Decimal, *, offloads: bool) -> bool:
    """Whether a host has too little memory; one that reports none is only trusted where nothing is moved into it."""
    has = offer.ram_gb
    if has is None or not has.is_finite():
        return offloads
    return has < needed_gb
