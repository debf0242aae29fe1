"""Read the machine's GPUs through NVML, the library of NVIDIA's driver.

Only `pynvml` (nvidia-ml-py) talks to it; a machine without the driver has no GPUs here and that is no error. The cards
of AMD are described in the same words; `bot.agent.every_gpu` reads both.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from dataclasses import dataclass
from typing import Any

from bot.agent import libraries, own_folder


@dataclass(frozen=True)
class NvmlGpu:
    """One GPU as its driver shows it: memory in MiB, utilisation in percent, temperature in degrees Celsius."""

    name: str
    memory_mb: int
    memory_used_mb: int
    utilisation: float
    temperature_c: int


@dataclass(frozen=True)
class NvmlGpus:
    """What the driver shows. `problem` says why nothing could be read, and is empty when something could."""

    gpus: tuple[NvmlGpu, ...] = ()
    driver: str = ""
    cuda: str = ""
    problem: str = ""


def look() -> NvmlGpus:
    """Read all GPUs now; takes milliseconds after the first time."""
    if "pynvml" not in sys.modules:  # To compile it here would take 20 MB; the API's start had it compiled.
        libraries.know(sys.argv[0], own_folder.of_this_machine())
    try:
        import pynvml  # noqa: PLC0415 # It is large, so the first check-in does not wait for it.
    except ImportError:
        return NvmlGpus(problem="nvidia-ml-py is not part of this build.")
    finally:
        libraries.forget()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvmlGpus(problem=f"NVIDIA's driver doesn't answer: {error}.")
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        return NvmlGpus(tuple(_gpu(pynvml, one) for one in handles), driver, f"{cuda // 1000}.{cuda % 1000 // 10}")
    except pynvml.NVMLError as error:
        return NvmlGpus(problem=f"A GPU can't be read: {error}.")
    finally:
        pynvml.nvmlShutdown()
        _return_memory()


def _return_memory() -> None:
    """Give back to the system what the driver's library took and freed: 10 MB in each process (H200, driver 580)."""
    with contextlib.suppress(AttributeError, OSError):  # Only glibc has it.
        ctypes.CDLL(None).malloc_trim(0)


def _gpu(pynvml: Any, handle: Any) -> NvmlGpu:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError:
        # Before driver 510, and it counts what the driver keeps for itself as used: 615 MiB on an idle H200.
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return NvmlGpu(
        _text(pynvml.nvmlDeviceGetName(handle)),
        memory.total >> 20,
        memory.used >> 20,
        float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
    )


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
