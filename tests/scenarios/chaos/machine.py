"""The machine under the processes of a chaos run: clocks that step, name servers that never answer, a disk that fills.

Each is left out where this machine cannot do it: clocks need Debian's libfaketime, the other two need root.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
IS_ROOT = os.geteuid() == 0
#: A loopback address of our own, on whose port 53 somebody reads and nobody answers.
NAME_SERVER = "127.0.0.53"
DISK_MB = 96
#: Mounts a resolver's file over the machine's own, in a mount namespace that only this program's children see.
WITH_RESOLVER = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


@dataclass(frozen=True)
class Machine:
    """What the replicas run on. `folder` lies on a disk of its own where `has_disk`."""

    folder: Path
    has_disk: bool
    has_names: bool

    @property
    def has_clocks(self) -> bool:
        """Whether each replica has a clock that can be stepped."""
        return FAKETIME is not None

    @property
    def missing(self) -> list[str]:
        """Name what this machine cannot bring."""
        have = {"clock steps": self.has_clocks, "slow names": self.has_names, "full disk": self.has_disk}
        return [what for what, is_there in have.items() if not is_there]

    def command(self) -> list[str]:
        """Return what stands before a replica's program."""
        if not self.has_names:
            return []
        return ["unshare", "--mount", "sh", "-c", WITH_RESOLVER, str(self.folder / "resolv.conf")]

    def environment(self, replica: int) -> Mapping[str, str]:
        """Return the variables of a replica: whose clock it reads."""
        if FAKETIME is None:
            return {}
        self.step_clock(replica, 0)
        return {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock_file(replica)),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }

    def step_clock(self, replica: int, seconds: int) -> None:
        """Set a replica's clock so many seconds ahead of the machine's; negative: behind."""
        file = self._clock_file(replica)
        new = file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(file)

    def _clock_file(self, replica: int) -> Path:
        # Beside the folder, so that a full disk leaves the clock alone.
        return self.folder.parent / f"clock-{replica}"

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Fill the disk to its last byte, and make room again at the end."""
        ballast = self.folder / "ballast"
        try:
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
            with suppress(OSError), ballast.open("ab", buffering=0) as file:
                while True:
                    file.write(b"0")
            yield
        finally:
            ballast.unlink(missing_ok=True)


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """Make the disk and the name server in `folder`, and remove them at the end."""
    inner = folder / "machine"
    inner.mkdir(mode=0o700)
    with ExitStack() as made:
        has_disk = IS_ROOT and _ran("mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0700", "tmpfs", str(inner))
        if has_disk:
            made.callback(_ran, "umount", "--lazy", str(inner))
        (inner / "resolv.conf").write_text(f"nameserver {NAME_SERVER}\noptions timeout:5 attempts:2\n")
        has_names = IS_ROOT and shutil.which("unshare") is not None and _ran("unshare", "--mount", "true")
        if has_names:
            silent = made.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Both databases' machines have one.
            silent.bind((NAME_SERVER, 53))
        yield Machine(inner, has_disk, has_names)


def _ran(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
