"""Name each cloud as it writes itself, for sentences."""

from __future__ import annotations

from typing import Final

from providers.cloud_names import machines_of

_TITLES: Final = {
    "lambda": "Lambda",
    "runpod": "RunPod",
    "tensordock": "TensorDock",
    "vast": "Vast",
    "kaggle": "Kaggle",
}


def cloud_title(name: str) -> str:
    """Return the name of a cloud as it writes it itself, unescaped."""
    return _TITLES.get(machines_of(name), name)
