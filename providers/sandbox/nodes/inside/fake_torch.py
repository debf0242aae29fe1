"""Stand in for torch on a machine of the sandbox: the part that the check of the GPUs' speed uses.

Nothing is computed. A multiplication moves the clock of its GPU by the time that it would take at the machine's rate.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__version__ = "2.7.1"
bfloat16, float16 = "bf16", "fp16"
_hardware: dict[str, Any] = json.loads((Path(os.environ["GPU_SHOPPER_SANDBOX_NODE"]) / "hardware.json").read_text())
_clocks_ms: defaultdict[int, float] = defaultdict(float)
_current = [0]


class GpuMark:
    """A mark on the clock of the GPU that is used now."""

    def __init__(self, *, enable_timing: bool = False) -> None:
        self.at_ms = 0.0

    def record(self) -> None:
        self.at_ms = _clocks_ms[_current[0]]

    def elapsed_time(self, end: GpuMark) -> float:
        """Milliseconds from this mark to the other."""
        return end.at_ms - self.at_ms


@contextlib.contextmanager
def _device(number: int) -> Iterator[None]:
    before, _current[0] = _current[0], number
    try:
        yield
    finally:
        _current[0] = before


def _count() -> int:
    return 0 if _hardware["fault"] else int(_hardware["count"])


def _capability(_number: int) -> tuple[int, int]:
    major, _, minor = str(_hardware["capability"]).partition(".")
    return int(major), int(minor or 0)


cuda = SimpleNamespace(
    device_count=_count,
    get_device_capability=_capability,
    Event=GpuMark,
    device=_device,
    synchronize=lambda _number: None,
)


def randn(rows: int, _columns: int, **_where: str) -> int:
    """Return the size of a matrix in place of one."""
    return rows


def matmul(left: int, _right: int, *, out: int) -> int:
    """Let the time pass that a multiplication takes."""
    _clocks_ms[_current[0]] += 2 * left**3 / (_hardware["tflops"] * 1e12) * 1000
    return out


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Do as without it."""
    yield
