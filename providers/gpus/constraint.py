"""Describe which GPUs are asked for, as a constraint that each cloud translates."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class GpuConstraint:
    """Describe hardware as a constraint, never a SKU. Names are canonical; empty means any. Memory is GB per GPU.

    `cuda_min` is the least CUDA that the host's driver must support, where an image or a person needs one.
    """

    names: tuple[str, ...] = ()
    count_min: int = 1
    count_max: int = 1
    memory_gb_min: Decimal | None = None
    memory_gb_max: Decimal | None = None
    cuda_min: Decimal | None = None
