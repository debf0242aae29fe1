"""Read the machine's GPUs: those of NVIDIA, or those of AMD."""

from __future__ import annotations

import os
from pathlib import Path

from bot.agent import amd_gpus, gpus
from bot.agent.gpus import NvmlGpus
from bot.agent.machine import ROOT


def look() -> NvmlGpus:
    """Read all GPUs now: NVIDIA's, or AMD's where there are none. Takes milliseconds after the first time."""
    found = gpus.look()
    if found.gpus:
        return found
    amd = amd_gpus.look(Path(os.environ.get(ROOT) or "/"))
    return amd if amd.gpus else found
