"""The inside of a sandbox's instance: who may log in, and the few built-in commands that it answers.

Nothing that somebody typed is ever run: a command line is read, and what is not built in is not found.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from providers.gpus.table import GPUS, spellings
from providers.images import Vendor

_KEY = re.compile(r"((?:ssh|ecdsa|sk)-[a-z0-9@.-]+) ([A-Za-z0-9+/]+=*)", re.ASCII)
_WORDS_BEFORE = re.compile(r"[A-Z_]+=\S*")
#: nvidia-smi shows a little less than the nominal memory.
MIB_PER_GB = 1018
DRIVER, CUDA = "580.65.06", "13.0"
OLD_DRIVER, OLD_CUDA = "470.256.02", "11.4"
NOT_FOUND = 127
#: What the command that shows a log exits with where there is none.
NO_LOG = 44
_TAIL = re.compile(r"tail -n (\d+) -- ")
_FOLLOW = re.compile(r"tail -n (\d+) -F -- ")
KEY_FILE = ".ssh/authorized_keys"
#: GB per GPU of a model that the table of GPUs lacks.
UNKNOWN_GB = 16


class Flaw(StrEnum):
    """What can be wrong with a machine that its cloud says is fine; each is a fault of every cloud with SSH."""

    NO_LOGIN = "machine_no_login"
    NEW_HOST_KEY = "machine_new_host_key"
    OTHER_HOST_KEY = "machine_other_host_key"
    WRONG_GPU = "machine_wrong_gpu"
    MISSING_GPU = "machine_missing_gpu"
    SMALL_GPU = "machine_small_gpu"
    OLD_DRIVER = "machine_old_driver"
    DRIVER_MISMATCH = "machine_driver_mismatch"
    NO_GPU_TOOL = "machine_no_gpu_tool"
    HUNG_GPU = "machine_hung_gpu"
    SLOW_GPU = "machine_slow_gpu"


FLAWS = {
    Flaw.NO_LOGIN: "the SSH server of the new machine refuses every key",
    Flaw.NEW_HOST_KEY: "the SSH server of the new machine shows another host key at each connection",
    Flaw.OTHER_HOST_KEY: "the SSH server at the new machine's address shows another host key than the machine has",
    Flaw.WRONG_GPU: "the new machine has other GPUs than its cloud says [gpu=RTX3060]",
    Flaw.MISSING_GPU: "the new machine has one GPU less than its cloud says",
    Flaw.SMALL_GPU: "the GPUs of the new machine have half of their memory",
    Flaw.OLD_DRIVER: "the GPU driver of the new machine is old",
    Flaw.DRIVER_MISMATCH: "the GPU driver of the new machine is half installed",
    Flaw.NO_GPU_TOOL: "the new machine has no GPU tool",
    Flaw.HUNG_GPU: "a GPU of the new machine does not respond",
    Flaw.SLOW_GPU: "the GPUs of the new machine reach a twentieth of their speed",
}


def keys_in(text: str) -> frozenset[str]:
    """Every public key in a text, as kind and base64: what a create call brought, wherever it was written."""
    return frozenset(f"{kind} {material}" for kind, material in _KEY.findall(text))


@dataclass(frozen=True, slots=True)
class SandboxMachine:
    """One machine: its GPUs, the keys that log in as `user`, and what is wrong with it."""

    gpu: str
    gpu_count: int
    keys: frozenset[str] = frozenset()
    user: str = "root"
    flaws: frozenset[Flaw] = field(default_factory=frozenset)
    other_gpu: str = "RTX3060"
    #: Whether a Python with torch answers; the program that it is sent is never run.
    has_torch: bool = True
    #: What its file of keys has since somebody replaced it, by its name; nothing: the keys of its create call.
    files: dict[str, bytes] = field(default_factory=dict)

    def lets_in(self, user: str, key: str) -> bool:
        """Whether this key (kind and base64, whatever follows) logs in as this user."""
        known = keys_in(self._key_file().decode("latin-1"))
        return user == self.user and " ".join(key.split()[:2]) in known and Flaw.NO_LOGIN not in self.flaws

    def _key_file(self) -> bytes:
        return self.files.get(KEY_FILE, "".join(f"{key}\n" for key in sorted(self.keys)).encode())

    def _replace_key_file(self, command: str, stdin: str) -> tuple[int, str]:
        """Replace the file of keys by standard input, in base64, if it still has the hash that the command names."""
        expected = re.search(r"= ([0-9a-f]{64})\b", command)
        if expected is None or hashlib.sha256(self._key_file()).hexdigest() != expected[1]:
            return 1, ""
        self.files[KEY_FILE] = base64.b64decode(stdin)
        return 0, ""

    def _tail(self, command: str, lines: int) -> tuple[int, str]:
        """Print the end of the first log that the command names and the machine has."""
        for name in re.findall(r"[\w./]+\.log\b", command):
            if (text := self.files.get(name.rpartition("/")[2])) is not None:
                return 0, "".join(text.decode(errors="replace").splitlines(keepends=True)[-lines:])
        return NO_LOG, ""

    def followed(self, command: str) -> Callable[[], str] | None:
        """Return what reads on in the log that a command follows: its end first, then what was added; else None."""
        if (tail := _FOLLOW.search(command)) is None:
            return None
        read = 0

        def more() -> str:
            nonlocal read
            text = self._tail(command, sys.maxsize)[1]
            added = text[read:] if read else "".join(text.splitlines(keepends=True)[-int(tail[1]) :])
            read = len(text)
            return added

        return more

    def run(self, command: str, stdin: str = "") -> tuple[int, str]:
        """Answer a command line of built-in commands joined by `&&`: the last exit status, and what was printed."""
        if (tail := _TAIL.search(command)) is not None:
            return self._tail(command, int(tail[1]))
        if KEY_FILE in command and "mv -f" in command:
            return self._replace_key_file(command, stdin)
        printed: list[str] = []
        for part in command.split("&&"):
            status, text = self._one(part, stdin)
            printed.append(text)
            if status:
                return status, "".join(printed)
        return 0, "".join(printed)

    def _one(self, part: str, stdin: str) -> tuple[int, str]:
        try:
            words = shlex.split(part)
        except ValueError:
            return 2, "sh: syntax error\n"
        while words and _WORDS_BEFORE.fullmatch(words[0]):
            words = words[1:]
        vendor = known.vendor if (known := GPUS.get(self._gpu)) else Vendor.NVIDIA
        match words:
            case ["echo", *said]:
                return 0, f"{' '.join(said)}\n"
            case ["base64", path] if path.endswith(KEY_FILE):
                return 0, base64.encodebytes(self._key_file()).decode()
            case ["nvidia-smi", *options] if vendor is Vendor.NVIDIA and Flaw.NO_GPU_TOOL not in self.flaws:
                return self._nvidia_smi(options)
            case ["python3", "-"] if self.has_torch:
                return 0, self._torch()
            case ["rocm-smi", *_] if vendor is Vendor.AMD and Flaw.NO_GPU_TOOL not in self.flaws:
                return 0, self._rocm_smi()
            case _:
                return NOT_FOUND, f"sh: 1: {words[0] if words else ''}: not found\n"

    # ── the GPU tools ────────────────────────────────────────────────────────────────────────────

    @property
    def _gpu(self) -> str:
        return self.other_gpu if Flaw.WRONG_GPU in self.flaws else self.gpu

    @property
    def _count(self) -> int:
        return self.gpu_count - (Flaw.MISSING_GPU in self.flaws)

    @property
    def _versions(self) -> tuple[str, str]:
        return (OLD_DRIVER, OLD_CUDA) if Flaw.OLD_DRIVER in self.flaws else (DRIVER, CUDA)

    def _memory(self) -> Decimal:
        """Nominal GB per GPU."""
        nominal_gb = GPUS[self._gpu].memory_gb if self._gpu in GPUS else UNKNOWN_GB
        return Decimal(nominal_gb) / (2 if Flaw.SMALL_GPU in self.flaws else 1)

    def _nvidia_smi(self, options: Iterable[str]) -> tuple[int, str]:
        driver, cuda = self._versions
        if Flaw.DRIVER_MISMATCH in self.flaws:
            return 18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.65\n"
        if Flaw.HUNG_GPU in self.flaws:
            return 255, "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n"
        if self._count == 0:
            return 6, "No devices were found\n"
        asked = next((word.partition("=")[2].split(",") for word in options if word.startswith("--query-gpu=")), None)
        if asked is None:
            return 0, (
                "\n==============NVSMI LOG==============\n\n"
                f"Driver Version                            : {driver}\n"
                f"CUDA Version                              : {cuda}\n\n"
                f"Attached GPUs                             : {self._count}\n"
            )
        shown = {
            "name": product_name(self._gpu),
            "memory.total": str(int(self._memory() * MIB_PER_GB)),
            "driver_version": driver,
        }
        return 0, f"{', '.join(shown.get(name, '[N/A]') for name in asked)}\n" * self._count

    def _torch(self) -> str:
        """What a program prints that multiplies matrices on each GPU: four fifths of the data sheet's rate."""
        known = GPUS.get(self._gpu)
        share = Decimal("0.05") if Flaw.SLOW_GPU in self.flaws else Decimal("0.8")
        rate = float((known.peak_bf16_tflops or 0) * share) if known else 0.0
        kind = "bf16" if known and (known.compute_capability or 0) >= 8 else "fp16"
        return json.dumps({"tflops": [round(rate, 1)] * self._count, "format": kind, "torch": "2.7.1"}) + "\n"

    def _rocm_smi(self) -> str:
        card = {
            "Card Series": product_name(self._gpu),
            "VRAM Total Memory (B)": str(int(self._memory() * 1024**3)),
        }
        cards: dict[str, object] = {f"card{number}": card for number in range(self._count)}
        return json.dumps({**cards, "system": {"Driver version": "6.10.5"}})


def product_name(gpu: str) -> str:
    """What the driver calls a GPU; RunPod's ids are these names."""
    return next(iter(spellings("runpod", gpu)), f"NVIDIA {gpu}")
