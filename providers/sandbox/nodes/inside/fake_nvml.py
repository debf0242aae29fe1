"""Stand in for NVIDIA's management library on a machine of the sandbox: the part of `pynvml` that the agent reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_TEMPERATURE_GPU = 0


nvmlMemory_v2 = 0x02000028  # noqa: N816 # The library's own name.
RESERVED_BYTES = 615 << 20


class NVMLError(Exception):
    """What the library raises."""


def _hardware() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_folder() / "hardware.json").read_text())
    return found


def _folder() -> Path:
    return Path(os.environ["GPU_SHOPPER_SANDBOX_NODE"])


def _is_busy() -> bool:
    return (_folder() / "busy").exists()


def nvmlInit() -> None:  # noqa: N802 # The library's own name, as all below.
    if _hardware().get("vendor") == "AMD":
        raise NVMLError("NVML Shared Library Not Found")
    if _hardware()["fault"]:
        raise NVMLError("Driver/library version mismatch")


def nvmlShutdown() -> None:  # noqa: N802
    """Nothing was opened."""


def nvmlDeviceGetCount() -> int:  # noqa: N802
    return int(_hardware()["count"])


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
    return index


def nvmlSystemGetCudaDriverVersion_v2() -> int:  # noqa: N802
    major, _, minor = str(_hardware()["cuda"]).partition(".")
    return int(major) * 1000 + int(minor or 0) * 10


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    return str(_hardware()["driver"])


def nvmlDeviceGetName(_handle: int) -> str:  # noqa: N802
    return str(_hardware()["name"])


def nvmlDeviceGetMemoryInfo(_handle: int, version: int | None = None) -> Any:  # noqa: N802
    total = int(_hardware()["memory_mib"]) << 20
    used = total // 2 if _is_busy() else 3 << 20
    # The older call counts what the driver keeps for itself.
    return SimpleNamespace(total=total, used=used if version == nvmlMemory_v2 else used + RESERVED_BYTES)


def nvmlDeviceGetUtilizationRates(_handle: int) -> Any:  # noqa: N802
    return SimpleNamespace(gpu=96 if _is_busy() else 0)


def nvmlDeviceGetTemperature(_handle: int, _sensor: int) -> int:  # noqa: N802
    return 61 if _is_busy() else 34
