"""Files go into the workspace and come out whole, through dropped connections, and nothing outside is reached."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from bot.agent.api import uploads
from bot.agent.api.app import Api

BIG = bytes(range(256)) * 12_000  # 3 MB: more than one block.
WRONG_PATHS = [
    "", "/etc/passwd", "../secret", "a/../../secret", "a//b", ".", "..", "a/.", "a\0b", "a\nb", "x" * 256,
    "/".join("a" * 40), "y/" * 600 + "y", ".gpu-shopper-uploads/part", "a/", "\x7f",
]  # fmt: skip


def asked(path: str, content: bytes, **more: Any) -> dict[str, Any]:
    return {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()} | more


async def test_a_file_goes_up_and_comes_down(api: Api, caller: httpx.AsyncClient) -> None:
    reply = await caller.post("files/upload", params=asked("data/one.bin", BIG), content=BIG)
    assert reply.status_code == 200, reply.text
    assert reply.json() == asked("data/one.bin", BIG)
    assert (api.workspace.root / "data/one.bin").read_bytes() == BIG
    down = await caller.get("files/download/data/one.bin")
    assert (down.status_code, down.content == BIG) == (200, True)
    digest = (await caller.get("files/download/data/one.bin", params={"checksum": "true"})).json()
    assert (digest["sha256"], digest["etag"]) == (hashlib.sha256(BIG).hexdigest(), down.headers["etag"])
    assert list((api.workspace.root / ".gpu-shopper-uploads").iterdir()) == []


async def test_a_dropped_upload_is_resumed_where_it_stopped(api: Api, caller: httpx.AsyncClient) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        yield BIG[:1_500_000]
        raise httpx.ReadError("the network is gone")

    with pytest.raises(httpx.ReadError):
        await caller.post("files/upload", params=asked("one.bin", BIG), content=breaks())
    assert not (api.workspace.root / "one.bin").exists()
    again = await caller.post("files/upload", params=asked("one.bin", BIG), content=b"")
    for _ in range(50):  # The broken call may still write what it has.
        if again.status_code in (202, 409) and again.json().get("data", {}).get("offset", 0) == 1_500_000:
            break
        again = await caller.post("files/upload", params=asked("one.bin", BIG), content=b"")
    offset = again.json()["data"]["offset"]
    assert offset == 1_500_000
    part = await caller.post("files/upload", params=asked("one.bin", BIG, offset=offset), content=BIG[offset:2_000_000])
    assert (part.status_code, part.json()["offset"]) == (202, 2_000_000)
    last = await caller.post("files/upload", params=asked("one.bin", BIG, offset=2_000_000), content=BIG[2_000_000:])
    assert last.status_code == 200
    assert (api.workspace.root / "one.bin").read_bytes() == BIG


async def test_wrong_bytes_and_too_many_are_refused(api: Api, caller: httpx.AsyncClient) -> None:
    wrong = await caller.post("files/upload", params=asked("a", b"right"), content=b"wrong")
    assert (wrong.status_code, "SHA-256" in wrong.json()["detail"]) == (422, True)
    more = await caller.post("files/upload", params=asked("a", b"right"), content=b"right and more")
    assert (more.status_code, "beyond" in more.json()["detail"]) == (400, True)
    right = await caller.post("files/upload", params=asked("a", b"right"), content=b"right")
    assert right.status_code == 200
    assert [one.name for one in api.workspace.root.iterdir() if one.is_file()] == ["a"]


@pytest.mark.parametrize(
    "change",
    [
        {"size": ""},
        {"size": "-1"},
        {"size": "9" * 40},
        {"sha256": "x"},
        {"sha256": ""},
        {"offset": "1e3"},
        {"offset": "٣"},
    ],
)
async def test_wrong_figures_have_a_sentence(caller: httpx.AsyncClient, change: dict[str, Any]) -> None:
    reply = await caller.post("files/upload", params=asked("a", b"x", **change), content=b"x")
    assert (reply.status_code, "must be" in reply.json()["detail"]) == (400, True)


async def test_a_full_disk_is_said_before_anything_is_written(
    caller: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = await caller.post("files/upload", params=asked("a", b"x", size=10**15 - 1), content=b"x")
    assert (reply.status_code, "room for" in reply.json()["detail"]) == (413, True)


@pytest.mark.parametrize("path", WRONG_PATHS)
async def test_no_path_leads_out(api: Api, caller: httpx.AsyncClient, path: str) -> None:
    secret = api.folder / "secret"
    secret.write_text("secret")
    up = await caller.post("files/upload", params=asked(path, b"x"), content=b"x")
    assert (up.status_code, "inside the workspace" in up.json()["detail"]) == (400, True)
    raw = "".join(f"%{one:02x}" for one in path.encode())
    down = await caller.get(f"files/download/{raw}")
    assert down.status_code in (400, 404), down.text
    assert secret.read_text() == "secret"


async def test_links_pipes_and_folders_are_refused_and_left_as_they_are(api: Api, caller: httpx.AsyncClient) -> None:
    root, outside = api.workspace.root, api.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "link").symlink_to(outside / "secret")
    (root / "folder-link").symlink_to(outside)
    os.link(outside / "secret", root / "hard")
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for path, status in {"link": 403, "folder-link/secret": 404, "hard": 403, "pipe": 403, "folder": 403}.items():
        reply = await caller.get(f"files/download/{path}")
        assert reply.status_code == status, (path, reply.text)
        assert "secret" not in reply.text.replace(path, "")
    into = await caller.post("files/upload", params=asked("folder-link/new", b"x"), content=b"x")
    assert into.status_code == 409
    onto = await caller.post("files/upload", params=asked("folder", b"x"), content=b"x")
    assert onto.status_code == 409
    for path in ("link", "hard", "pipe"):  # The name is replaced, and what it led to is not written to.
        assert (await caller.post("files/upload", params=asked(path, b"x"), content=b"x")).status_code == 200
        assert (root / path).read_bytes() == b"x"
    assert (outside / "secret").read_text() == "secret"
    assert {one.name for one in outside.iterdir()} == {"secret"}


RANGES = [
    ("bytes=0-9", 206, 0, 10), ("bytes=100-", 206, 100, None), ("bytes=-7", 206, -7, None), ("bytes=0-", 200, 0, None),
    ("bytes=5-2", 200, 0, None), ("bytes=-", 200, 0, None), ("bytes=0-1,3-4", 200, 0, None),
    ("lines=1-2", 200, 0, None),
    ("bytes=10-99999999999", 206, 10, None),
]  # fmt: skip


@pytest.mark.parametrize(("asked_for", "status", "begin", "end"), RANGES)
async def test_ranges(
    api: Api, caller: httpx.AsyncClient, asked_for: str, status: int, begin: int, end: int | None
) -> None:
    (api.workspace.root / "a").write_bytes(BIG)
    reply = await caller.get("files/download/a", headers={"Range": asked_for})
    assert (reply.status_code, reply.content == BIG[begin:end]) == (status, True)


async def test_a_range_beyond_the_end_and_of_a_changed_file(api: Api, caller: httpx.AsyncClient) -> None:
    file = api.workspace.root / "a"
    file.write_bytes(b"0123456789")
    beyond = await caller.get("files/download/a", headers={"Range": "bytes=10-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, "bytes */10")
    tag = (await caller.get("files/download/a")).headers["etag"]
    same = await caller.get("files/download/a", headers={"Range": "bytes=4-", "If-Range": tag})
    assert (same.status_code, same.content) == (206, b"456789")
    file.write_bytes(b"abcdefghij!")
    changed = await caller.get("files/download/a", headers={"Range": "bytes=4-", "If-Range": tag})
    assert (changed.status_code, changed.content) == (200, b"abcdefghij!")


async def test_one_call_at_a_time_writes_to_an_upload(api: Api, caller: httpx.AsyncClient) -> None:
    params = {name: str(value) for name, value in asked("a", BIG).items()}
    name = hashlib.sha256(f"a\0{params['size']}\0{params['sha256']}".encode()).hexdigest()
    with uploads._part(api.workspace, name):
        reply = await caller.post("files/upload", params=params, content=BIG)
    assert (reply.status_code, "Another call" in reply.json()["detail"]) == (409, True)
