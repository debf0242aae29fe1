"""A disk whose power fails: an ext4 file system in an image, which stops for good at a chosen moment.

What a program wrote but nobody flushed is then lost, as after a real power cut. `FS_IOC_SHUTDOWN` without a flush
does it at one instant: from then on the kernel writes nothing more to the image, and every try gets an error. Only
what a disk itself keeps in its own memory stays, so a flush that never reaches the disk is not noticed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ledger.engine.db import PRAGMAS, _sqlite_engine

#: `_IOR('X', 125, __u32)` of <linux/fs.h>, and to stop without flushing even the journal.
SHUTDOWN, NO_FLUSH = 0x8004587D, 2
SIZE_MB = 256
TOOLS = ("mkfs.ext4", "mount", "umount", "losetup")


def missing() -> str:
    """Return why this machine has no disk whose power can fail; empty when it has one."""
    if os.geteuid() != 0:
        return "mounting an image needs root"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"this machine has no {lacking[0]}"
    found = subprocess.run(["losetup", "--find"], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else f"this machine has no loop device: {found.stderr.strip()}"


def fail(folder: Path) -> None:
    """Cut the power of the disk that a folder lies on."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(opened, SHUTDOWN, struct.pack("I", NO_FLUSH))
    finally:
        os.close(opened)


@dataclass(frozen=True, slots=True)
class Disk:
    """An image behind a loop device of its own, and where it is mounted."""

    folder: Path
    device: str

    def mount(self) -> None:
        """Mount the image; after a power failure the file system recovers by its journal."""
        # The journal is committed when somebody flushes, and by itself once in five minutes.
        _run("mount", "-o", "commit=300", self.device, str(self.folder))

    def unmount(self) -> None:
        """Unmount it. What a healthy disk has not written yet is written now."""
        _run("umount", str(self.folder))

    def start_again(self) -> None:
        """Unmount and mount it, as when its power returns."""
        self.unmount()
        self.mount()


@contextmanager
def disk(parent: Path, size_mb: int = SIZE_MB) -> Iterator[Disk]:
    """Make an empty disk in a folder, and remove every trace of it at the end."""
    image, folder = parent / "disk.img", parent / "disk"
    folder.mkdir(mode=0o700)
    with ExitStack() as made:
        made.callback(folder.rmdir)
        made.callback(image.unlink, missing_ok=True)
        with image.open("wb") as file:
            file.truncate(size_mb << 20)
        _run("mkfs.ext4", "-q", "-F", str(image))
        # Kept from mount to mount: one that belongs to the mount is released some time after it.
        device = _run("losetup", "--find", "--show", str(image))
        made.callback(_try, "losetup", "--detach", device)
        ext4 = Disk(folder, device)
        ext4.mount()
        # Also when somebody still has a file of it open.
        made.callback(_try, "umount", "--lazy", str(folder))
        folder.chmod(0o700)
        yield ext4


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def _try(*command: str) -> None:
    """Run a command that may find nothing left to do."""
    subprocess.run(command, capture_output=True, check=False)


def flush_nothing() -> None:
    """Let this process ask for no flush of its ledger, which must be noticed when the power fails."""
    pragmas = tuple(one.replace("synchronous=FULL", "synchronous=OFF") for one in PRAGMAS)
    defaults = _sqlite_engine.__kwdefaults__ or {}
    defaults["pragmas"] = pragmas
