"""Read what a check-in says about the machine: its GPUs, its disk, its host key, and how its start went.

The service takes plain characters only and limits each field, so everything is cut to that here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.agent.activity import CGROUP, PROC, WTMP, ActivityPlaces
from bot.agent.gpus import NvmlGpu, NvmlGpus
from bot.agent.own_folder import folder_of
from bot.wire.checkin import LOG_CHARACTERS

#: Names the folder that is the machine's `/`, for sandboxes that run several machines on one computer.
ROOT = "GPU_SHOPPER_MACHINE_ROOT"
HOST_KEYS = tuple(Path(f"/etc/ssh/ssh_host_{kind}_key.pub") for kind in ("ed25519", "ecdsa", "rsa"))
_HOST_KEY = re.compile(r"(?:ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*", re.ASCII)
#: One line for each step of the start script that ended: its name, its exit code, and the seconds since the boot.
_STEP = re.compile(r"(\S+) (\d{1,3}) (\d{1,12}(?:\.\d{1,9})?)", re.ASCII)
STARTUP = Path("/opt/gpu-shopper/startup")
#: Where the clouds put what a start script prints.
LOGS = (Path("/opt/gpu-shopper/start.log"), Path("/tmp/onstart.log"), Path("/var/log/onstart.log"))  # noqa: S108 # Read.
#: Tokens of GPU Shopper are not passed on, wherever they were printed.
_TOKEN = re.compile(r"gpu[a-z]_[A-Za-z0-9_-]{16,}", re.ASCII)


@dataclass(frozen=True)
class Places:
    """Where the files of a machine are."""

    host_keys: tuple[Path, ...] = HOST_KEYS
    startup: Path = STARTUP
    logs: tuple[Path, ...] = LOGS
    disk: Path = Path("/")
    activity: ActivityPlaces = field(default_factory=ActivityPlaces)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Places:
        """Return where they are for an agent with this environment."""
        root = environment.get(ROOT)
        here = (lambda path: Path(root) / path.relative_to("/")) if root else Path
        startup = folder_of(environment).parent / STARTUP.name
        activity = ActivityPlaces(here(PROC), here(CGROUP), here(WTMP))
        return cls(tuple(map(here, HOST_KEYS)), startup, tuple(map(here, LOGS)), here(Path("/")), activity)


def report(seen: NvmlGpus, places: Places) -> dict[str, Any]:
    """Return what is known of the machine now, without what is not."""
    found: dict[str, Any] = {
        "gpus": [_gpu(one) for one in seen.gpus[:64]],
        "driver": plain(seen.driver, 32),
        "cuda": plain(seen.cuda, 16),
        "host_key": _host_key(places.host_keys),
        **_startup(places),
    }
    try:
        found["disk_free_gb"] = shutil.disk_usage(places.disk).free >> 30
    except OSError:
        return found
    return found


def plain(text: str, longest: int) -> str:
    """Return the text without characters that a check-in does not take."""
    return re.sub(r"[^A-Za-z0-9 ._()/+:-]", "", text)[:longest]


def _gpu(one: NvmlGpu) -> dict[str, Any]:
    return {"model": plain(one.name, 64), "memory_mb": one.memory_mb, "temperature_c": one.temperature_c}


def _host_key(files: tuple[Path, ...]) -> str:
    for file in files:
        match = _HOST_KEY.match(_text(file))
        if match is not None and len(match[0]) <= 800:
            return match[0]
    return ""


def _startup(places: Places) -> dict[str, Any]:
    steps = [match.groups() for line in _text(places.startup).splitlines() if (match := _STEP.fullmatch(line))]
    if not steps:
        return {}
    step, exit_code, _ = next((one for one in steps if int(one[1])), steps[-1])
    took_s = max(int(float(steps[-1][2]) - float(steps[0][2])), 0)
    found = {"startup_step": plain(step, 40), "startup_s": took_s, "exit_code": min(int(exit_code), 255)}
    return found | ({"log_tail": log_tail(places.logs)} if found["exit_code"] else {})


def log_tail(logs: tuple[Path, ...]) -> str:
    """Return the end of the first of these files that has any text, without tokens of GPU Shopper."""
    text = next((text for file in logs if (text := _text(file))), "")
    text = _TOKEN.sub("gpu…", text.replace("\r", "\n"))
    return "".join(one for one in text if one.isprintable() or one == "\n")[-LOG_CHARACTERS:]


def _text(file: Path) -> str:
    """Return the end of a file; "" where there is none."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(file.stat().st_size - 16_384, 0))
            return opened.read(16_384).decode(errors="replace")
    except OSError:
        return ""
