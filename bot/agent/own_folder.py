"""Say where the agent of this machine keeps its own files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = "GPU_SHOPPER_AGENT_FOLDER"
DEFAULT_FOLDER = "/opt/gpu-shopper/agent"


def of_this_machine() -> Path:
    """Return the folder of this machine's agent, by the variables of this process."""
    return folder_of(os.environ)


def folder_of(environment: Mapping[str, str]) -> Path:
    """Return the folder of this machine's agent."""
    return Path(environment.get(FOLDER) or DEFAULT_FOLDER)
