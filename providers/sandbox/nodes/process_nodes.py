"""Run the machines of all sandboxes of one process as real process trees, each in a folder of its own.

A machine gets power when its cloud says that it is reachable, and loses it with that. Its folder is its disk: it stays
while the machine is stopped, and goes with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from providers.sandbox.nodes.boot import NodeBoot
from providers.sandbox.nodes.folders import MARK, prepare
from providers.sandbox.ssh import HOST, SshPorts

#: What boots each machine that has power, by its key, and the keys of all machines that still exist.
Look = Callable[[], tuple[Mapping[str, Callable[[], NodeBoot | None]], AbstractSet[str]]]
#: How long a machine may take to end its processes before the rest of them is looked for by its mark.
OFF_S = 8.0
BOOT_S, LOOK_S = 30.0, 0.05
PROGRAM = "providers.sandbox.nodes.first_process"
SOURCES = Path(__file__).parents[3]
#: What it does, in one sentence, for whom it is about to run commands.
WARNING = (
    "Each rented machine is a folder and real processes on this computer, and commands that you send to it really run"
    " here, as your user."
)
CONFINED = "Bubblewrap keeps them from writing outside of that folder."
NOT_CONFINED = "Install bubblewrap to keep them from writing outside of that folder."


@dataclass
class ProcessNode:
    """One machine with power."""

    root: Path
    process: asyncio.subprocess.Process

    async def off(self) -> None:
        """Take its power: everything that it runs is killed, and its folder stays."""
        if self.process.stdin is not None and self.process.returncode is None:
            with contextlib.suppress(ConnectionError):
                self.process.stdin.write(b"off\n")
                await self.process.stdin.drain()
                self.process.stdin.close()
        try:
            async with asyncio.timeout(OFF_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        end_marked(self.root)


@dataclass
class ProcessNodes:
    """All machines, by the key of their SSH port, below `folder`.

    `address` is where the sandboxes' own API is, once it is served. With `openssh`, OpenSSH's server serves the logins;
    with `confined`, bubblewrap runs the machines.
    """

    folder: Path
    openssh: bool = False
    confined: bool = field(default_factory=lambda: shutil.which("bwrap") is not None)
    address: str = ""
    #: Where machines reach their clouds in place of `address`: a network that a test can cut.
    network: str = ""
    #: How many times faster the machines' clocks run, and how far their calendars are wrong.
    clock_speed: float = 1.0
    calendar_off_s: float = 0.0
    #: Whether a cloud answers only once the SSH server of a machine that just got power does: for clocks that jump.
    waits: bool = False
    running: dict[str, ProcessNode] = field(default_factory=dict)
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def explained(self) -> str:
        """Say what runs where."""
        return f"{WARNING} {CONFINED if self.confined else NOT_CONFINED}"

    def root(self, key: str) -> Path:
        """The folder of a machine; a new container of it has the same."""
        return self.folder / key.replace("/", "-").partition(".")[0]

    async def match(self, prefix: str, look: Look, ports: SshPorts) -> None:
        """Give power to exactly what `look` finds among the keys that start with `prefix`; forget what is no more."""
        async with self._changing:
            wanted, existing = look()
            gone = [key for key in self.running if key.startswith(prefix) and key not in wanted]
            await asyncio.gather(*(self.running.pop(key).off() for key in gone))
            for key in gone:
                await ports.close(key)
            for key, make in wanted.items():
                if key not in self.running and (boot := make()) is not None:
                    self.running[key] = await self._start(prefix.rstrip("/"), key, boot, ports)
            await self._forget(prefix, {self.root(key) for key in existing | set(wanted)})

    async def _start(self, cloud: str, key: str, boot: NodeBoot, ports: SshPorts) -> ProcessNode:
        root = self.root(key)
        said = prepare(root, boot, f"{self.network or self.address}/{cloud}")
        self.set_clock(root)
        port_fd = ports.hand_over(key)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._confinement(root),
                sys.executable,
                "-W",
                "ignore",  # Of a library, about logins that are cut at the power-off.
                "-m",
                PROGRAM,
                stdin=asyncio.subprocess.PIPE,
                env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(SOURCES), MARK: str(root)},
                pass_fds=(port_fd,),
                cwd=root,
            )
        finally:
            os.close(port_fd)
        if process.stdin is None:
            raise AssertionError("it is a pipe")
        process.stdin.write(json.dumps({**said, "port_fd": port_fd, "openssh": self.openssh}).encode() + b"\n")
        await process.stdin.drain()
        if self.waits:
            await _answers(ports.reserve(key))
        return ProcessNode(root, process)

    def set_clock(self, root: Path) -> None:
        """Write how the machine's clocks go, from its first boot on."""
        file = root / "clock.json"
        began_s = json.loads(file.read_text())["began_s"] if file.exists() else time.clock_gettime(time.CLOCK_BOOTTIME)
        said = {"began_s": began_s, "speed": self.clock_speed, "calendar_off_s": self.calendar_off_s}
        file.with_suffix(".new").write_text(json.dumps(said))
        file.with_suffix(".new").replace(file)

    def _confinement(self, root: Path) -> list[str]:
        """Return the words that run a program which sees this computer, and writes only into the machine's folder."""
        if not self.confined or self.openssh:
            return []
        hidden = [] if Path.home() == Path("/") else ["--tmpfs", str(Path.home())]
        seen = sorted({Path(sys.prefix), Path(sys.base_prefix), SOURCES} - {Path("/usr")})
        shown = [word for one in seen for word in ("--ro-bind", str(one), str(one))]
        return [
            *("bwrap", "--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *("--tmpfs", "/tmp", *hidden, *shown, "--bind", str(root), str(root), "--chdir", str(root)),  # noqa: S108 # Private.
        ]

    async def _forget(self, prefix: str, kept: AbstractSet[Path]) -> None:
        """Delete the disks of this cloud's machines that do not exist any more."""
        pattern = f"{prefix.replace('/', '-')}*"
        for root in await asyncio.to_thread(lambda: set(self.folder.glob(pattern)) - kept):
            await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)

    async def close(self) -> None:
        """End every machine and delete its disk."""
        async with self._changing:
            nodes = list(self.running.values())
            self.running.clear()
            await asyncio.gather(*(node.off() for node in nodes))
            for root in list(self.folder.iterdir()):
                await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


async def _answers(port: int) -> None:
    """Wait until something listens on a port. TimeoutError when nothing does."""
    async with asyncio.timeout(BOOT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except OSError:
                await asyncio.sleep(LOOK_S)
            else:
                writer.close()
                return


def end_marked(root: Path) -> int:
    """Kill what still has the mark of this machine in its environment. Returns how many processes that were."""
    mark, ended = f"{MARK}={root}".encode(), 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
                ended += 1
    return ended
