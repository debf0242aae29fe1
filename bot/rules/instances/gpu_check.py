"""Read what the GPU tool of a machine prints, and compare it with what was bought.

No text of the machine goes into a sentence: its GPUs are named by the table of GPUs, or not at all.
Sources: the messages of nvidia-smi and their causes in NVIDIA's "GPU Debug Guidelines" and "NVML API Reference"
(return values NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIB_RM_VERSION_MISMATCH and NVML_ERROR_GPU_IS_LOST); the JSON of
rocm-smi as in AMD's "ROCm SMI CLI".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from bot.rules.nodes.host_keys import differ
from bot.rules.values.phrases import plural
from ledger.kernel.end_reason import EndReason
from ledger.kernel.login_problem import LoginProblem
from providers.gpus.table import GPUS, MEMORY_TOLERANCE, canonical
from providers.images import Vendor

#: What is run on a machine. The second call shows the newest CUDA that the driver supports.
COMMANDS = {
    Vendor.NVIDIA: (
        "nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader,nounits && "
        "nvidia-smi -q -d COMPUTE"
    ),
    Vendor.AMD: "PATH=$PATH:/opt/rocm/bin rocm-smi --showproductname --showmeminfo vram --showdriverversion --json",
}
#: A driver that is being installed, or a GPU that is being attached, may still come so long after the first login.
SETTLES_WITHIN = timedelta(minutes=2)
#: The same kind of GPU with another connection is accepted from this share of the peak rate on.
NEARLY = Decimal("0.9")
MIB_PER_GB = 1024
_ROW = re.compile(r"(?P<name>[^,:\n]{1,80}), (?P<mib>[0-9]{1,7}), (?P<driver>[0-9]{1,5}(?:\.[0-9]{1,5}){0,3})\s*")
_CUDA = re.compile(r"^CUDA Version\s*:\s*([0-9]{1,2}\.[0-9]{1,2})\s*$", re.MULTILINE)
#: Ends of a machine that was not what was bought. It is offered to nobody for so long after its create.
FAILED_DELIVERY = frozenset(
    {
        EndReason.WRONG_GPUS,
        EndReason.GPU_MISSING,
        EndReason.LOW_GPU_MEMORY,
        EndReason.OLD_DRIVER,
        EndReason.DRIVER_BROKEN,
        EndReason.THROTTLED,
        EndReason.NO_LOGIN,
        EndReason.WRONG_HOST_KEY,
        EndReason.HOST_KEY_MISMATCH,
    }
)
AVOIDED_FOR = timedelta(hours=24)
#: A part of what the tool prints → what is wrong.
_BROKEN = {
    "version mismatch": "the driver and its library have different versions",
    "communicate with the NVIDIA driver": "the tool can't reach the driver",
    "device handle": "a GPU does not respond",
    "GPU is lost": "a GPU does not respond",
    "not found": "the tool nvidia-smi or rocm-smi is missing",
    "No such file": "the tool nvidia-smi or rocm-smi is missing",
}


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """Describe one GPU as its machine shows it; `gpu` is its canonical name, None for a spelling that is unknown."""

    gpu: str | None
    memory_gb: Decimal


@dataclass(frozen=True, slots=True)
class SeenMachine:
    """Describe the GPUs of a machine, its driver, and the newest CUDA that the driver supports; "" and None: unsaid."""

    gpus: tuple[SeenGpu, ...]
    driver: str = ""
    cuda: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Bought:
    """Describe what was bought; `min_cuda` is what the image needs, None where it needs nothing that is known."""

    gpu: str
    count: int
    memory_gb: Decimal | None = None
    min_cuda: Decimal | None = None

    @property
    def vendor(self) -> Vendor:
        """Return the maker of the GPUs."""
        known = GPUS.get(self.gpu)
        return known.vendor if known is not None else Vendor.NVIDIA

    def __str__(self) -> str:
        """Write it for people: `2 × RTX4090`."""
        return f"{self.count} × {self.gpu}"


class GpuVerdict(NamedTuple):
    """Say why a machine is not what was bought. `may_settle`: it may still become right within `SETTLES_WITHIN`."""

    code: EndReason
    sentence: str
    may_settle: bool = False


#: What kept a login from working until the time for a boot was over.
_LOGIN = {
    LoginProblem.UNREACHABLE: (EndReason.NO_LOGIN, "its SSH server stopped answering or showed no usable host key"),
    LoginProblem.REFUSED: (EndReason.NO_LOGIN, "it refused GPU Shopper's key"),
    LoginProblem.NO_ANSWER: (EndReason.NO_LOGIN, "the login worked, but the command that shows its GPUs hung"),
    LoginProblem.WRONG_HOST_KEY: (EndReason.WRONG_HOST_KEY, "its SSH host key changed while it booted"),
}


def other_host_key(shown: str, reported: str) -> GpuVerdict:
    """Return the verdict on a machine whose agent reports another host key than its address shows.

    Waited for, because a machine may replace its image's keys while it boots; the next check-in has the new one.
    """
    sentence = f"{differ(shown, reported)} Somebody may intercept connections, so the machine is not used."
    return GpuVerdict(EndReason.HOST_KEY_MISMATCH, sentence, may_settle=True)


def login_failed(problem: LoginProblem, spent: str) -> tuple[EndReason, str]:
    """Return code and sentence for a machine that could not be logged in to within the time `spent`."""
    code, what = _LOGIN[problem]
    return code, f"GPU Shopper could not check the machine within {spent}: {what}."


def read(vendor: Vendor, output: str) -> SeenMachine:
    """Read the output of the vendor's tool; a machine without GPUs where it shows none that can be read."""
    if vendor is Vendor.AMD:
        return _read_amd(output)
    rows = [found for line in output.splitlines() if (found := _ROW.fullmatch(line))]
    gpus = [(row["name"], _gb(Decimal(row["mib"]) / MIB_PER_GB)) for row in rows]
    cuda = _CUDA.search(output)
    return SeenMachine(
        tuple(SeenGpu(canonical("", name, memory_gb), memory_gb) for name, memory_gb in gpus),
        rows[0]["driver"] if rows else "",
        Decimal(cuda[1]) if cuda else None,
    )


def _gb(amount: Decimal) -> Decimal:
    """Cut what nobody reads: a tenth of a GB decides nothing."""
    return Decimal(f"{amount:.1f}")


def _read_amd(output: str) -> SeenMachine:
    start = output.find("{")
    try:
        said = json.loads(output[start:] if start >= 0 else "{}")
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    cards = [value for name, value in said.items() if str(name).startswith("card") and isinstance(value, dict)]
    system = said.get("system")
    driver = str(system.get("Driver version", "")) if isinstance(system, dict) else ""
    plain = re.fullmatch(r"[0-9][0-9.]{0,23}", driver)
    return SeenMachine(tuple(_amd_card(card) for card in cards), driver if plain else "")


def _amd_card(card: dict[Any, Any]) -> SeenGpu:
    words = {str(name).lower(): str(value) for name, value in card.items()}
    memory = words.get("vram total memory (b)", "")
    memory_gb = Decimal(memory) / MIB_PER_GB**3 if memory.isascii() and memory.isdigit() else Decimal(0)
    return SeenGpu(canonical("", words.get("card series", "")[:80]), _gb(memory_gb))


def judge(bought: Bought, seen: SeenMachine, output: str = "") -> GpuVerdict | None:
    """Return why the machine is not what was bought, None where it is. `output` is what the tool printed."""
    broken = next((what for mark, what in _BROKEN.items() if mark in output), "")
    right = [gpu for gpu in seen.gpus if gpu.gpu is None or _same_kind(bought.gpu, gpu.gpu)]
    if len(seen.gpus) < bought.count and broken:
        return GpuVerdict(
            EndReason.DRIVER_BROKEN, f"{bought} bought, but its GPU driver does not work: {broken}.", may_settle=True
        )
    if len(right) < bought.count:
        others = Counter(gpu.gpu for gpu in seen.gpus if gpu not in right)
        if others:
            found = " and ".join(f"{count} × {name}" for name, count in others.items())
            return GpuVerdict(EndReason.WRONG_GPUS, f"{bought} bought, but the machine has {found}.")
        found = plural(len(seen.gpus), "GPU") if seen.gpus else "no GPU"
        return GpuVerdict(EndReason.GPU_MISSING, f"{bought} bought, but the machine shows {found}.", may_settle=True)
    return _too_small(bought, right) or _too_old(bought, seen)


def _too_small(bought: Bought, right: list[SeenGpu]) -> GpuVerdict | None:
    known = GPUS.get(bought.gpu)
    nominal_gb = bought.memory_gb or (Decimal(known.memory_gb) if known is not None else None)
    if nominal_gb is None:
        return None
    # An AMD card with two dies is shown as two GPUs with half of the memory each.
    dies = max(1, len(right) // bought.count) if bought.vendor is Vendor.AMD else 1
    # Of more GPUs than were bought, the largest ones count.
    largest = sorted((gpu.memory_gb for gpu in right), reverse=True)
    least_gb = largest[bought.count * dies - 1] * dies
    if least_gb >= nominal_gb * (1 - MEMORY_TOLERANCE):
        return None
    sentence = f"{bought} with {nominal_gb:f} GB each bought, but a GPU of the machine has {least_gb:f} GB of memory."
    return GpuVerdict(EndReason.LOW_GPU_MEMORY, sentence)


def _too_old(bought: Bought, seen: SeenMachine) -> GpuVerdict | None:
    if bought.min_cuda is None or seen.cuda is None or seen.cuda >= bought.min_cuda:
        return None
    sentence = (
        f"{bought} bought, but the machine's driver {seen.driver} supports CUDA {seen.cuda} and the job needs "
        f"{bought.min_cuda}."
    )
    return GpuVerdict(EndReason.OLD_DRIVER, sentence)


def _same_kind(bought: str, seen: str) -> bool:
    """Whether a GPU is the one that was bought, or the same kind with another connection that is as fast."""
    if bought == seen:
        return True
    ours, theirs = GPUS.get(bought), GPUS.get(seen)
    if ours is None or theirs is None or _family(bought) != _family(seen):
        return ours is None  # A name that the table lacks can't be compared.
    peaks = ours.peak_bf16_tflops, theirs.peak_bf16_tflops
    return peaks[0] is None or peaks[1] is None or peaks[1] >= peaks[0] * NEARLY


def _family(name: str) -> str:
    """Return the part of a name before its connection or memory: `A100` of `A100-SXM-80GB`."""
    return name.partition("-")[0]
