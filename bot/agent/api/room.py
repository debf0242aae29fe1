"""Decide whether the workspace has room for an upload: a quota, and what stays free on the disk for the job."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bot.agent.api.problems import ApiRefusal

#: What is left free on the disk, so that an upload never stops the job's checkpoint.
SPARE_BYTES = 1 << 30
#: How much of its disk the workspace may hold after an upload. The rest is for software, caches and checkpoints.
QUOTA_PERCENT = 80
#: Each upload that runs holds a block in memory.
MOST_UPLOADS = 16


@dataclass
class ComingUpload:
    """An upload that runs, and the bytes that it will still write."""

    left: int


@dataclass
class UploadRoom:
    """The room for uploads in the workspace `root`."""

    root: Path
    _coming: list[ComingUpload] = field(default_factory=list)

    @asynccontextmanager
    async def reserved(self, needed: int) -> AsyncIterator[ComingUpload]:
        """Reserve so many bytes for an upload. Raises ApiRefusal (413, 429).

        What other uploads will still write counts, too, so several at once don't pass the limit together.
        """
        if len(self._coming) >= MOST_UPLOADS:
            raise ApiRefusal(429, f"{MOST_UPLOADS} uploads run already. Wait until one ended.", {"Retry-After": "5"})
        upload = ComingUpload(needed)
        self._coming.append(upload)
        try:
            await self._check(upload)
            yield upload
        finally:
            # Two uploads with the same bytes left are equal, and are not the same.
            self._coming[:] = [one for one in self._coming if one is not upload]

    async def _check(self, upload: ComingUpload) -> None:
        disk, needed = os.statvfs(self.root), upload.left
        others = sum(one.left for one in self._coming) - needed
        free = disk.f_bavail * disk.f_frsize - SPARE_BYTES - others
        if needed > free:
            sentence = f"The disk has room for {max(free, 0) >> 20} MiB and the file needs {needed >> 20} MiB."
            raise ApiRefusal(413, sentence)
        quota = disk.f_blocks * disk.f_frsize * QUOTA_PERCENT // 100
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        if used + others + needed <= quota:
            return  # The workspace holds no more than its disk, so its files need not be counted.
        held = await asyncio.to_thread(_held_bytes, self.root)
        if held + others + needed > quota:
            sentence = (
                f"The workspace may hold {quota >> 20} MiB, {QUOTA_PERCENT}% of its disk. It has {held + others >> 20} "
                f"MiB and the file needs {needed >> 20} MiB. Delete what you don't need."
            )
            raise ApiRefusal(413, sentence)


def _held_bytes(root: Path) -> int:
    """Return what the files below a folder take on their disk; each once, however many names it has."""
    held, folders, seen = 0, [str(root)], set[tuple[int, int]]()
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for one in entries:
                    if one.is_dir(follow_symlinks=False):
                        folders.append(one.path)
                        continue
                    found = one.stat(follow_symlinks=False)
                    if found.st_nlink > 1 and (found.st_dev, found.st_ino) in seen:
                        continue
                    seen |= {(found.st_dev, found.st_ino)} if found.st_nlink > 1 else set()
                    held += found.st_blocks * 512
        except OSError:  # The job deleted it meanwhile.
            continue
    return held
