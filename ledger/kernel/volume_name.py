"""Name a network volume where a machine names its GPU."""

from __future__ import annotations

from typing import Final

#: What is no machine but a network volume has this, and the volume's name, in place of a GPU.
VOLUME: Final = "volume:"


def volume_of(gpu: str) -> str:
    """Return the name of the network volume that stands in place of a GPU; "" for a GPU."""
    return gpu.removeprefix(VOLUME) if gpu.startswith(VOLUME) else ""
