"""Say where the agent of this machine keeps its own files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FOLDER = "GPU_SHOPPER_AGENT_FOLDER"
DEFAULT_FOLDER = "/opt/gpu-shopper/agent"


def folder_of(environment: Mapping[str, str]) -> Path:
    """Return the folder of this machine's agent."""
    return Path(environment.get(FOLDER) or DEFAULT_FOLDER)
