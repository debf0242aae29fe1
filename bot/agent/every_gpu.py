"""Read the machine's GPUs: those of NVIDIA, or those of AMD; here, or in a process that ends with the reading."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bot.agent import amd_gpus, gpus
from bot.agent.gpus import NvmlGpu, NvmlGpus
from bot.agent.job_process import own_program
from bot.agent.machine import ROOT

#: What a driver may take to answer; eight GPUs that nobody uses take over ten seconds.
READ_S = 20.0


def look() -> NvmlGpus:
    """Read all GPUs now: NVIDIA's, or AMD's where there are none. Takes milliseconds after the first time."""
    found = gpus.look()
    if found.gpus:
        return found
    amd = amd_gpus.look(Path(os.environ.get(ROOT) or "/"))
    return amd if amd.gpus else found


def main(_arguments: list[str], /) -> int:
    """Read them once and print them as JSON."""
    sys.stdout.write(json.dumps(asdict(look())))
    return 0


@dataclass
class GpuReader:
    """Reads the GPUs in a process of its own each time.

    The driver's library would keep 16 MB in each process that used it (H200, driver 580), and a driver that hangs would
    hold up the check-ins.
    """

    command: Sequence[str] = field(default_factory=lambda: [sys.executable, *own_program(), "read-gpus"])
    timeout_s: float = READ_S
    #: A reading that its driver never answered; nothing ends it, and no other one is begun beside it.
    _stuck: subprocess.Popen[str] | None = None

    def look(self) -> NvmlGpus:
        """Read all GPUs now; takes the start of a process, about 0.1 s."""
        if self._stuck is not None and self._stuck.poll() is None:
            return NvmlGpus(problem="The GPU driver still does not answer.")
        self._stuck = None
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        try:
            process = subprocess.Popen(self.command, stdin=nothing, stdout=pipe, stderr=nothing, text=True)
        except OSError as error:
            return NvmlGpus(problem=f"The GPUs can't be read: {error}.")
        try:
            said, _ = process.communicate(timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()  # It ends when the driver lets it, so nobody waits.
            if process.stdout is not None:
                process.stdout.close()
            self._stuck = process
            return NvmlGpus(problem=f"The GPU driver did not answer within {self.timeout_s:g} s.")
        try:
            found = json.loads(said)
            return NvmlGpus(tuple(NvmlGpu(**one) for one in found.pop("gpus")), **found)
        except (ValueError, KeyError, TypeError, AttributeError):
            return NvmlGpus(problem=f"The reading of the GPUs ended with {process.returncode}.")
