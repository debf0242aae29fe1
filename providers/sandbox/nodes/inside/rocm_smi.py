"""Answer as AMD's tool does with `--json`, from the machine's own description of its GPUs."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def answer(folder: Path) -> str:
    """Return what is printed."""
    gpus = json.loads((folder / "hardware.json").read_text())
    card = {"Card Series": gpus["name"], "VRAM Total Memory (B)": str(gpus["memory_mib"] << 20)}
    cards = {f"card{number}": card for number in range(gpus["count"])}
    return json.dumps({**cards, "system": {"Driver version": "6.10.5"}})


if __name__ == "__main__":
    print(answer(Path(sys.argv[1])))
