"""What the agent reads of CPUs, network and logins, from files as Linux writes them."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from bot.agent.activity import OWN_LOGIN_S, Activity, ActivityPlaces
from bot.api.schemas.agent import CheckinIn

BOOT, NOW = 1_700_000_000, 1_700_010_000
HZ = os.sysconf("SC_CLK_TCK")
CPUS = len(os.sched_getaffinity(0))
NETWORK = """Inter-|   Receive                        |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes
    lo: 9 0 0 0 0 0 0 0 9 0
  eth0: {} 0 0 0 0 0 0 0 {} 0
 docker0: 7 0 0 0 0 0 0 0 7 0
"""


@dataclass
class Linux:
    """A machine's files, below a folder."""

    root: Path

    def write(self, name: str, text: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    def cpu(self, ticks: int) -> None:
        self.write("proc/stat", f"cpu  {ticks} 0 0 99 9 0 0 0 0 0\ncpu0 1 2\nbtime {BOOT}\n")

    def process(self, number: int, title: str, after_s: float) -> None:
        """A process that began so many seconds after the boot."""
        self.write(f"proc/{number}/cmdline", title.encode() + b"\0")
        fields = ["S", *["0"] * 18, str(int(after_s * HZ)), "0"]
        self.write(f"proc/{number}/stat", f"{number} (sshd ) x) {' '.join(fields)}")

    def wtmp(self, *rows: tuple[int, int]) -> None:
        """Records of wtmp: type and seconds since 1970."""
        shape = struct.Struct("<hhi32s4s32s256shhiii16s20s")
        made = [shape.pack(kind, 0, 1, b"pts/0", b"", b"root", b"", 0, 0, 0, at, 0, b"", b"") for kind, at in rows]
        self.write("var/log/wtmp", b"".join(made))


@dataclass
class Clock:
    """Seconds since 1970, and since some start."""

    at: float = 0.0

    def monotonic(self) -> float:
        return self.at

    def now(self) -> float:
        return NOW + self.at


@pytest.fixture
def linux(tmp_path: Path) -> Linux:
    machine = Linux(tmp_path)
    machine.cpu(0)
    return machine


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def activity(linux: Linux, clock: Clock) -> Activity:
    places = ActivityPlaces(linux.root / "proc", linux.root / "cgroup", linux.root / "var/log/wtmp")
    return Activity(places, clock.monotonic, clock.now)


def read(activity: Activity) -> dict[str, Any]:
    """What is reported, which the service's own schema takes."""
    found = activity.read()
    TypeAdapter(CheckinIn).validate_python({"v": 2, "seq": 1, "machine": found})
    return found


def test_cpu_and_network_are_averages_since_the_last_time(linux: Linux, clock: Clock, activity: Activity) -> None:
    linux.write("proc/net/dev", NETWORK.format(1000, 2000))
    assert read(activity) == {"logins": 0}
    clock.at = 60
    linux.cpu(int(60 * HZ * CPUS / 4))
    linux.write("proc/net/dev", NETWORK.format(601_000, 602_000))
    assert read(activity) == {"cpu_percent": 25.0, "network_kb_s": 20, "logins": 0}
    clock.at = 120
    linux.cpu(0)  # A counter that went back, as after a checkpoint of the container.
    linux.write("proc/net/dev", NETWORK.format(0, 0))
    assert read(activity) == {"cpu_percent": 0.0, "network_kb_s": 0, "logins": 0}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cgroup/cpu.stat", "usage_usec {}000000\nuser_usec 1\n"),
        ("cgroup/cpuacct/cpuacct.usage", "{}000000000\n"),
        ("cgroup/cpu,cpuacct/cpuacct.usage", "{}000000000\n"),
    ],
)
def test_a_container_s_own_cpu_time_counts_and_not_its_neighbours(
    linux: Linux, clock: Clock, activity: Activity, name: str, text: str
) -> None:
    linux.write("cgroup/cpu.max", "50000 100000\n")
    linux.write(name, text.format(5))
    read(activity)
    clock.at = 60
    linux.cpu(9999)
    linux.write(name, text.format(20))
    assert read(activity)["cpu_percent"] == 50.0


def test_without_a_quota_all_cpus_count(linux: Linux, clock: Clock, activity: Activity) -> None:
    linux.write("cgroup/cpu.max", "max 100000\n")
    linux.write("cgroup/cpu.stat", "usage_usec 0\n")
    read(activity)
    clock.at = 10
    linux.write("cgroup/cpu.stat", f"usage_usec {CPUS * 10_000_000}\n")
    assert read(activity)["cpu_percent"] == 100.0


def test_open_logins_are_counted_and_the_newest_is_remembered(linux: Linux, clock: Clock, activity: Activity) -> None:
    linux.process(1, "/usr/sbin/sshd -D", 1)
    linux.process(2, "sshd: root [priv]", 9000)
    linux.process(3, "sshd: root@pts/0", 9000)
    linux.process(4, "sshd-session: ubuntu@notty", 9990)  # GPU Shopper's own are as short as that.
    assert read(activity) == {"logins": 1, "last_login_at": "2023-11-15T00:43:20+00:00"}
    clock.at = OWN_LOGIN_S
    assert read(activity)["logins"] == 2
    for number in (3, 4):
        (linux.root / f"proc/{number}/cmdline").unlink()
    assert read(activity)["last_login_at"] == "2023-11-15T00:59:50+00:00"
    assert read(activity)["logins"] == 0


def test_logins_between_two_check_ins_are_in_wtmp(linux: Linux, activity: Activity) -> None:
    linux.wtmp((7, BOOT + 10), (8, BOOT + 500), (7, BOOT + 400), (2, BOOT + 900))
    assert read(activity) == {"logins": 0, "last_login_at": "2023-11-14T22:20:00+00:00"}


@pytest.mark.parametrize("at", [NOW + 5, 0])
def test_a_login_of_another_time_is_left_out(linux: Linux, activity: Activity, at: int) -> None:
    linux.wtmp((7, at))
    assert read(activity) == {"logins": 0}


def test_a_machine_that_shows_nothing_reports_nothing(tmp_path: Path) -> None:
    places = ActivityPlaces(tmp_path / "proc", tmp_path / "cgroup", tmp_path / "wtmp")
    activity = Activity(places)
    assert (activity.read(), activity.read()) == ({}, {})


@pytest.mark.parametrize("text", ["", "cpu x\nbtime y\n", "cpu  1 2\n", "intr 1 2 3\n\x00\xff"])
def test_broken_files_are_no_error(linux: Linux, clock: Clock, activity: Activity, text: str) -> None:
    for name in ("proc/stat", "proc/net/dev", "cgroup/cpu.stat", "cgroup/cpu.max", "var/log/wtmp", "proc/7/cmdline"):
        linux.write(name, text)
    activity.read()
    clock.at = 60
    assert activity.read() == {}


def test_this_computer_can_be_read() -> None:
    read(Activity())
