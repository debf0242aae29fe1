"""Read the stored check of a machine's GPUs, and write it for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class CheckedGpus:
    """Hold what the check found before the machine became ready. `tflops` is empty where no speed was measured."""

    at: datetime
    gpus: tuple[str, ...]
    memory_gb: tuple[Decimal, ...]
    driver: str
    cuda: str | None
    tflops: tuple[Decimal, ...]

    @property
    def line(self) -> str:
        """Write it in a few words: `2 × RTX4090, driver 570.124.06`."""
        counted = " and ".join(f"{count} × {name}" for name, count in Counter(self.gpus).items())
        return f"{counted}, driver {self.driver}" if self.driver else counted

    @property
    def more(self) -> str:
        """Write what few people need: the newest CUDA of the driver, and the speed of the slowest GPU."""
        parts = [f"CUDA {self.cuda}"] if self.cuda else []
        each = " each" if len(self.tflops) > 1 else ""
        parts.append(f"{min(self.tflops):f} TFLOP/s{each}" if self.tflops else "speed not measured")
        return ", ".join(parts)


def checked_gpus(record: Mapping[str, Any] | None) -> CheckedGpus | None:
    """Return what a good check found; None before one, and for a machine that is not what was bought."""
    if not record or record.get("problem") or record.get("verdict") or not record.get("gpus"):
        return None
    return CheckedGpus(
        datetime.fromisoformat(record["at"]),
        tuple(gpu["gpu"] or "GPU" for gpu in record["gpus"]),
        tuple(Decimal(gpu["memory_gb"]) for gpu in record["gpus"]),
        str(record.get("driver") or ""),
        record.get("cuda"),
        tuple(Decimal(rate) for rate in record.get("tflops") or ()),
    )
