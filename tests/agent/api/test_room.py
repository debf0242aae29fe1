"""The workspace has a quota: uploads beyond it are refused with a sentence, alone and together."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from bot.agent.api import room
from bot.agent.api.app import Api

MIB = 1 << 20
#: A disk of 100 MiB, so the workspace may hold 80 MiB; 99 MiB of it are free, or none.
BLOCKS = 100


class Disk:
    """What `statvfs` says of it."""

    f_frsize = MIB
    f_blocks = BLOCKS

    def __init__(self, free: int, available: int) -> None:
        self.f_bfree, self.f_bavail = free, available


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """So much of the disk is in use that the workspace's own files are counted; there is room beside."""
    monkeypatch.setattr(os, "statvfs", lambda _path: Disk(10, 10**6))


def asked(path: str, content: bytes, **more: Any) -> dict[str, Any]:
    return {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()} | more


@pytest.mark.usefixtures("full")
async def test_an_upload_beyond_the_quota_is_refused_and_one_within_it_is_not(
    api: Api, caller: httpx.AsyncClient
) -> None:
    (api.workspace.root / "folder").mkdir()
    with (api.workspace.root / "folder/big").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 79 * MIB)
    os.link(api.workspace.root / "folder/big", api.workspace.root / "again")  # It is counted once.
    (api.workspace.root / "elsewhere").symlink_to("/usr")
    reply = await caller.post("files/upload", params=asked("a", b"x", size=2 * MIB), content=b"x")
    assert reply.status_code == 413, reply.text
    assert reply.json()["detail"] == (
        "The workspace may hold 80 MiB, 80% of its disk. It has 79 MiB and the file needs 2 MiB. "
        "Delete what you don't need."
    )
    assert (await caller.post("files/upload", params=asked("b", b"x"), content=b"x")).status_code == 200


@pytest.mark.usefixtures("full")
async def test_two_uploads_at_once_do_not_pass_it_together(api: Api, caller: httpx.AsyncClient) -> None:
    go_on = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield bytes(MIB)
        await go_on.wait()
        yield bytes(49 * MIB)

    first = asyncio.create_task(caller.post("files/upload", params=asked("a", bytes(50 * MIB)), content=slow()))
    async with asyncio.timeout(20):
        while not api.room._coming:  # noqa: ASYNC110 # The first call tells nobody that it began.
            await asyncio.sleep(0.01)
    second = await caller.post("files/upload", params=asked("b", bytes(40 * MIB)), content=b"")
    assert (second.status_code, "The workspace may hold" in second.json()["detail"]) == (413, True)
    go_on.set()
    assert (await first).status_code == 200
    assert api.room._coming == []


async def test_a_disk_with_room_counts_no_file(
    api: Api, caller: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: Disk(99, 10**6))
    monkeypatch.setattr(room, "_held_bytes", None)
    assert (await caller.post("files/upload", params=asked("b", b"x"), content=b"x")).status_code == 200


async def test_many_uploads_at_once_are_refused(api: Api, caller: httpx.AsyncClient) -> None:
    async with asyncio.TaskGroup() as group:
        api.room._coming.extend(room.ComingUpload(0) for _ in range(room.MOST_UPLOADS))
        reply = await group.create_task(caller.post("files/upload", params=asked("b", b"x"), content=b"x"))
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "5")


async def test_a_folder_that_vanishes_is_not_counted(api: Api) -> None:
    assert room._held_bytes(api.workspace.root / "gone") == 0
