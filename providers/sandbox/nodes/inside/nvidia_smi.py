"""Answer as NVIDIA's tool does, from the machine's own description of its GPUs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

FAULTS = {
    "machine_driver_mismatch": (
        18,
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.65",
    ),
    "machine_hung_gpu": (255, "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error"),
}


def answer(folder: Path, options: list[str]) -> tuple[int, str]:
    """Return the exit code and what is printed."""
    gpus = json.loads((folder / "hardware.json").read_text())
    if gpus["fault"]:
        return FAULTS[gpus["fault"]]
    if gpus["count"] == 0:
        return 6, "No devices were found"
    busy = (folder / "busy").exists()
    shown = {
        "name": gpus["name"],
        "memory.total": gpus["memory_mib"],
        "memory.used": gpus["memory_mib"] // 2 if busy else 3,
        "driver_version": gpus["driver"],
        "utilization.gpu": 96 if busy else 0,
        "temperature.gpu": 61 if busy else 34,
    }
    asked = next((one.partition("=")[2].split(",") for one in options if one.startswith("--query-gpu=")), None)
    if asked is not None:
        return 0, "\n".join([", ".join(str(shown.get(name, "[N/A]")) for name in asked)] * gpus["count"])
    if "-L" in options:
        return 0, "\n".join(f"GPU {number}: {gpus['name']}" for number in range(gpus["count"]))
    return 0, (
        "\n==============NVSMI LOG==============\n\n"
        f"Driver Version                            : {gpus['driver']}\n"
        f"CUDA Version                              : {gpus['cuda']}\n\n"
        f"Attached GPUs                             : {gpus['count']}"
    )


if __name__ == "__main__":
    code, text = answer(Path(sys.argv[1]), sys.argv[2:])
    print(text)
    sys.exit(code)
