"""Read AMD's GPUs from the files of Linux's amdgpu driver, which needs no library and no program.

Sources: "amdgpu sysfs interface" in the Linux kernel's documentation (mem_info_vram_total, gpu_busy_percent and hwmon),
and the device ids of pci.ids.
"""

from __future__ import annotations

import re
from pathlib import Path

from bot.agent.gpus import NvmlGpu, NvmlGpus

DRM, NODES, VERSION = Path("sys/class/drm"), Path("dev/dri"), Path("sys/module/amdgpu/version")
AMD = "0x1002"
_CARD = re.compile(r"card\d+")
#: Cards with less memory are the graphics of a processor or drive a screen.
LEAST_MB = 8 << 10
#: Names of cards whose driver has none, by their device id.
_NAMES = {
    "0x738c": "AMD Instinct MI100",
    "0x7408": "AMD Instinct MI250X",
    "0x740c": "AMD Instinct MI250X",
    "0x740f": "AMD Instinct MI210",
    "0x74a0": "AMD Instinct MI300A",
    "0x74a1": "AMD Instinct MI300X",
    "0x74a5": "AMD Instinct MI325X",
    "0x74b5": "AMD Instinct MI300X",
    "0x75a0": "AMD Instinct MI350X",
    "0x75a3": "AMD Instinct MI355X",
}


def look(root: Path) -> NvmlGpus:
    """Read all cards below `root` that this machine may use; none where there is no such driver."""
    found = [one for card in _cards(root) if (one := _gpu(root, card)) is not None]
    return NvmlGpus(tuple(found), _text(root / VERSION)) if found else NvmlGpus()


def _cards(root: Path) -> list[Path]:
    try:
        cards = [one for one in (root / DRM).iterdir() if _CARD.fullmatch(one.name)]
    except OSError:
        return []
    return sorted((one / "device" for one in cards), key=lambda one: int(one.parent.name[4:]))


def _gpu(root: Path, device: Path) -> NvmlGpu | None:
    memory_mb = _number(device / "mem_info_vram_total") >> 20
    if _text(device / "vendor") != AMD or memory_mb < LEAST_MB or not _is_usable(root, device):
        return None
    name = _text(device / "product_name") or _NAMES.get(_text(device / "device"), "AMD GPU")
    used_mb = _number(device / "mem_info_vram_used") >> 20
    return NvmlGpu(name, memory_mb, used_mb, float(_number(device / "gpu_busy_percent")), _celsius(device))


def _is_usable(root: Path, device: Path) -> bool:
    """Whether the card's device node is here: a container sees every card of its host, and may use its own only."""
    try:
        return any((root / NODES / one.name).exists() for one in (device / "drm").glob("renderD*"))
    except OSError:
        return False


def _celsius(device: Path) -> int:
    """Return the first temperature that the card reports: of its edge, or of its hottest spot where it has no edge."""
    sensors = sorted(device.glob("hwmon/hwmon*/temp[0-9]_input"))
    return _number(sensors[0]) // 1000 if sensors else 0


def _number(file: Path) -> int:
    text = _text(file)
    return int(text) if text.isascii() and text.isdecimal() else 0


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")[:200].strip()
    except OSError:
        return ""
