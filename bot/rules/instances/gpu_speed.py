"""Measure how fast each GPU of a machine multiplies matrices, beside the peak rate of its data sheet.

A GPU that is throttled, shared or misconfigured has the right name and memory, and only its speed tells.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from bot.rules.instances.gpu_check import Bought, GpuVerdict
from ledger.kernel.end_reason import EndReason
from providers.gpus.table import GPUS

#: Seconds for the whole measurement: importing torch takes most of it.
SPEED_S = 30.0
#: The first of these folders with a Python is the one in which the images of Vast.ai and of PyTorch keep torch.
SPEED_COMMAND = "PATH=/venv/main/bin:/opt/conda/bin:$PATH python3 -"
#: The least share of the data sheet's rate. Full-size cards reach 65 to 95 % of it in such a loop.
LEAST_SHARE = Decimal("0.5")
#: Cards of 40 to 150 W whose power limit does not allow the rate of their data sheet for longer than a moment.
POWER_LIMITED = frozenset({"T4", "L4", "A2", "A10", "A16"})
LEAST_SHARE_POWER_LIMITED = Decimal("0.2")
GPUS_MAX = 64

#: All GPUs work at the same time, as in a training run. The second size is for cards that finish the first too fast.
SPEED_PROGRAM = """
import json, time
try:
    import torch
    count = torch.cuda.device_count()
except Exception:
    count = 0
found = {"tflops": [], "format": ""}
if count:
    bf16 = torch.cuda.get_device_capability(0)[0] >= 8
    kind = torch.bfloat16 if bf16 else torch.float16
    found = {"tflops": [], "format": "bf16" if bf16 else "fp16", "torch": torch.__version__.split("+")[0]}
    def matrices(size):
        return [[torch.randn(size, size, device=f"cuda:{n}", dtype=kind) for _ in range(3)] for n in range(count)]
    def multiply(size, work, times):
        marks = []
        for n, (a, b, c) in enumerate(work):
            with torch.cuda.device(n):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                for _ in range(times):
                    torch.matmul(a, b, out=c)
                end.record()
                marks.append((start, end))
        for n in range(count):
            torch.cuda.synchronize(n)
        return [start.elapsed_time(end) / 1000 / times for start, end in marks]
    with torch.no_grad():
        size = 4096
        work = matrices(size)
        multiply(size, work, 1)
        once_s = max(multiply(size, work, 1))
        if once_s < 0.004:
            size = 8192
            work = matrices(size)
            multiply(size, work, 1)
            once_s = max(multiply(size, work, 1))
        took_s = multiply(size, work, max(1, min(500, int(0.6 / once_s))))
    found["tflops"] = [round(2 * size**3 / one / 1e12, 1) for one in took_s]
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Speed:
    """Hold what each GPU reached, in TFLOP/s, and the format in which it multiplied."""

    tflops: tuple[Decimal, ...]
    format: str


def read_speed(output: str) -> Speed | None:
    """Read what the program printed last; None where nothing was measured, as without torch."""
    lines = output.strip().splitlines()
    try:
        said: Any = json.loads(lines[-1], parse_float=Decimal) if lines else {}
        tflops = tuple(Decimal(one) for one in said["tflops"])
    except (ValueError, KeyError, TypeError, InvalidOperation, RecursionError):
        return None
    if not 0 < len(tflops) <= GPUS_MAX or not all(rate.is_finite() and 0 <= rate < 10**6 for rate in tflops):
        return None
    return Speed(tflops, "bf16" if said.get("format") == "bf16" else "fp16")


def judge_speed(bought: Bought, speed: Speed) -> GpuVerdict | None:
    """Return why the machine is too slow; None where it is not, or where the GPU's rate is not published."""
    known = GPUS.get(bought.gpu)
    peak = known.peak_bf16_tflops if known is not None else None
    if peak is None:
        return None
    least = peak * (LEAST_SHARE_POWER_LIMITED if bought.gpu in POWER_LIMITED else LEAST_SHARE)
    number, slowest = min(enumerate(speed.tflops), key=lambda one: one[1])
    if slowest >= least:
        return None
    sentence = (
        f"{bought} bought, but GPU {number} reached {slowest:f} TFLOP/s in a test. Its data sheet says {peak:f}, and "
        f"at least {least.normalize():f} is expected."
    )
    return GpuVerdict(EndReason.THROTTLED, sentence)
