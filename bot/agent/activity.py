"""Read how busy a machine is beside its GPUs: its CPUs, its network, and who is logged in over SSH.

Everything comes from files that Linux keeps. What can't be read is left out.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

PROC, CGROUP, WTMP = Path("/proc"), Path("/sys/fs/cgroup"), Path("/var/log/wtmp")
#: Interfaces whose bytes another one counts, too, or that lead nowhere.
_NOT_COUNTED = re.compile(r"(?:lo|docker|br-|veth|virbr|tun|tap)")
#: The title of an SSH login's process: `sshd: root@pts/0`, `sshd-session: root@notty`.
_LOGIN = re.compile(rb"sshd(?:-session)?: \S{1,64}@(pts/\d+|notty)", re.ASCII)
#: A login without a terminal counts from this age on, because GPU Shopper's own are such and take less.
OWN_LOGIN_S = 120.0
#: One record of wtmp on x86-64 and arm64: the type is its first number, and seconds since 1970 the eleventh.
_RECORD = struct.Struct("<hhi32s4s32s256shhiii16s20s")
_USER_PROCESS, _WTMP_RECORDS = 7, 256
MOST = 2**53 - 1


@dataclass(frozen=True)
class ActivityPlaces:
    """Where Linux keeps it; below another folder in sandboxes that run several machines on one computer."""

    proc: Path = PROC
    cgroup: Path = CGROUP
    wtmp: Path = WTMP


@dataclass
class Activity:
    """Measure from one `read` to the next. CPU and network are left out of the first one."""

    places: ActivityPlaces = field(default_factory=ActivityPlaces)
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    _at: float | None = None
    _cpu_s: float | None = None
    _network: int | None = None
    _last_login: float = 0.0

    def read(self) -> dict[str, Any]:
        """Return the percent of the CPUs and kB/s since the last call, the open logins, and the newest one's begin."""
        at, cpu_s, network = self.monotonic(), _cpu_seconds(self.places), _network_bytes(self.places.proc)
        found: dict[str, Any] = {}
        took_s = at - self._at if self._at is not None else 0.0
        if took_s > 0 and cpu_s is not None and self._cpu_s is not None:
            share = (cpu_s - self._cpu_s) / took_s / _cpus(self.places.cgroup)
            found["cpu_percent"] = round(min(max(share * 100, 0.0), 100.0), 1)
        if took_s > 0 and network is not None and self._network is not None:
            found["network_kb_s"] = min(max(round((network - self._network) / took_s / 1000), 0), MOST)
        self._at, self._cpu_s, self._network = at, cpu_s, network
        return found | self._logins()

    def _logins(self) -> dict[str, Any]:
        began = _open_logins(self.places.proc, self.now())
        if began is None:
            return {}
        self._last_login = max(self._last_login, _newest_in_wtmp(self.places.wtmp), *began)
        found: dict[str, Any] = {"logins": min(len(began), 10_000)}
        if 0 < self._last_login <= self.now():
            found["last_login_at"] = datetime.fromtimestamp(int(self._last_login), timezone.utc).isoformat()
        return found


def _cpu_seconds(places: ActivityPlaces) -> float | None:
    """Return the CPU seconds used so far: of this container where Linux counts them, else of the whole machine."""
    for line in _lines(places.cgroup / "cpu.stat"):
        name, _, value = line.partition(" ")
        if name == "usage_usec" and value.isdecimal():
            return int(value) / 1e6
    for group in ("cpuacct", "cpu,cpuacct"):
        for line in _lines(places.cgroup / group / "cpuacct.usage"):
            if line.isdecimal():
                return int(line) / 1e9
    first = next(iter(_lines(places.proc / "stat")), "").split()
    if len(first) < 9 or first[0] != "cpu" or not all(one.isdecimal() for one in first[1:9]):
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _cpus(cgroup: Path) -> float:
    """Return how many CPUs this machine may use."""
    count = float(len(os.sched_getaffinity(0)))
    words = " ".join(_lines(cgroup / "cpu.max")).split()
    if len(words) == 2 and all(one.isdecimal() for one in words) and int(words[0]) > 0 and int(words[1]) > 0:
        return min(count, int(words[0]) / int(words[1]))
    return count


def _network_bytes(proc: Path) -> int | None:
    """Return the bytes received and sent so far."""
    total = None
    for line in _lines(proc / "net" / "dev"):
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) < 9 or _NOT_COUNTED.match(name.strip()) or not (words[0].isdecimal() and words[8].isdecimal()):
            continue
        total = (total or 0) + int(words[0]) + int(words[8])
    return total


def _open_logins(proc: Path, now: float) -> list[float] | None:
    """Return when each open SSH login began, in seconds since 1970; None where processes can't be read."""
    boot = next((line.split()[1] for line in _lines(proc / "stat") if line.startswith("btime ")), "")
    if not boot.isdecimal():
        return None
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        title = _LOGIN.match(_read(folder / "cmdline"))
        after = _read(folder / "stat").rpartition(b") ")[2].split() if title else []
        if title is None or len(after) < 20:
            continue
        began = int(boot) + int(after[19]) / os.sysconf("SC_CLK_TCK")
        if title[1] != b"notty" or now - began >= OWN_LOGIN_S:
            found.append(began)
    return found


def _newest_in_wtmp(path: Path) -> float:
    """Return when somebody last got a terminal, in seconds since 1970; 0 where nobody is known."""
    data = _read(path, _RECORD.size * _WTMP_RECORDS)
    if len(data) % _RECORD.size:
        return 0.0
    rows = (_RECORD.unpack_from(data, first) for first in range(0, len(data), _RECORD.size))
    return max((float(row[10]) for row in rows if row[0] == _USER_PROCESS), default=0.0)


def _lines(path: Path) -> list[str]:
    return _read(path, 1 << 20).decode(errors="replace").splitlines()


def _read(path: Path, longest: int = 4096) -> bytes:
    """Return the end of a file, of one in /proc (they have no size) the beginning; empty where there is none."""
    try:
        with path.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            opened.seek(max(size - longest, 0))
            return opened.read(longest)
    except OSError:
        return b""
