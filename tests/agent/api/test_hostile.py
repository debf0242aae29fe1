"""Calls that come together, are cut off or are made to break something: done once or refused, and no error of ours."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.agent.api import status
from bot.agent.api.app import Api
from bot.agent.gpus import NvmlGpus, look
from bot.agent.job_process import CommandFolder

LONE = "\ud800"


def order(name: str, *argv: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "command": "start", "argv": list(argv)} | more


async def ended(api: Api, name: str) -> dict[str, Any]:
    place = api.commands.place(name)
    async with asyncio.timeout(20):
        while (state := place.read()) is None or state.exit_code is None:  # noqa: ASYNC110 # It is another process.
            await asyncio.sleep(0.01)
    return {"exit_code": state.exit_code}


async def test_the_same_start_many_times_at_once_does_it_once(api: Api, caller: httpx.AsyncClient) -> None:
    body = order("one", "sh", "-c", "echo x >> count; exit 3")
    replies = await asyncio.gather(*(caller.post("ml/command", json=body) for _ in range(8)))
    assert {one.status_code for one in replies} == {200}
    assert await ended(api, "one") == {"exit_code": 3}
    assert (api.workspace.root / "count").read_text() == "x\n"


async def test_of_two_jobs_at_once_one_starts(api: Api, caller: httpx.AsyncClient) -> None:
    bodies = [order(f"job-{one}", "sleep", "30", job=True) for one in range(4)]
    replies = await asyncio.gather(*(caller.post("ml/command", json=one) for one in bodies))
    assert sorted(one.status_code for one in replies) == [200, 409, 409, 409]
    job = api.commands.job()
    assert job is not None
    assert CommandFolder(api.folder / "job", "job.log").kill(job)


async def test_an_earlier_job_keeps_its_answer(api: Api, caller: httpx.AsyncClient) -> None:
    """Repeating the start of a job that a later one followed neither starts it again nor forgets how it ended."""
    first = order("first", "sh", "-c", "echo x >> count; exit 4", job=True)
    await caller.post("ml/command", json=first)
    await ended(api, "first")
    await caller.post("ml/command", json=order("second", "true", job=True))
    await ended(api, "second")
    again = await caller.post("ml/command", json=first)
    assert (again.status_code, again.json()["exit_code"]) == (200, 4)
    assert (api.workspace.root / "count").read_text() == "x\n"


async def test_a_start_that_was_cut_off_before_it_began_begins_when_repeated(
    api: Api, caller: httpx.AsyncClient
) -> None:
    body = order("cut", "sh", "-c", "echo x >> count")
    assert (await caller.post("ml/command", json=body)).status_code == 200
    await ended(api, "cut")
    (api.folder / "commands/cut/state.json").unlink()  # As if the machine went down before the runner wrote it.
    assert (await caller.post("ml/command", json=body)).status_code == 200
    await ended(api, "cut")
    assert (api.workspace.root / "count").read_text() == "x\nx\n"


@pytest.mark.parametrize(
    "more", [{"cwd": LONE}, {LONE: 1}, {"env": {LONE: "1"}}, {"env": {"A": LONE}}, {"id": LONE}, {"argv": [LONE]}]
)
async def test_texts_that_are_no_unicode_are_refused(caller: httpx.AsyncClient, more: dict[str, Any]) -> None:
    body = json.dumps(order("u", "true") | more)
    reply = await caller.post("ml/command", content=body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["detail"]


def question(content: bytes, path: str = "x.bin") -> dict[str, Any]:
    return {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def part_of(api: Api, asked: dict[str, Any]) -> Path:
    folder = api.workspace.root / ".gpu-shopper-uploads"
    folder.mkdir(exist_ok=True)
    return folder / hashlib.sha256(f"{asked['path']}\0{asked['size']}\0{asked['sha256']}".encode()).hexdigest()


async def test_a_hard_link_in_the_place_of_a_part_is_not_written_to(
    api: Api, caller: httpx.AsyncClient, tmp_path: Path
) -> None:
    outside, asked = tmp_path / "outside", question(b"content")
    outside.write_bytes(b"")
    os.link(outside, part_of(api, asked))
    reply = await caller.post("files/upload", params=asked, content=b"content")
    assert reply.status_code == 409, reply.text
    assert outside.read_bytes() == b""


async def test_a_pipe_in_the_place_of_a_part_is_refused(api: Api, caller: httpx.AsyncClient) -> None:
    asked = question(b"content")
    os.mkfifo(part_of(api, asked))
    assert (await caller.post("files/upload", params=asked, content=b"content")).status_code == 409


async def test_a_link_in_the_place_of_the_parts_is_refused(api: Api, caller: httpx.AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (api.workspace.root / ".gpu-shopper-uploads").symlink_to(tmp_path / "elsewhere")
    assert (await caller.post("files/upload", params=question(b"c"), content=b"c")).status_code == 409
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_workspace_that_was_deleted_is_made_again(api: Api, caller: httpx.AsyncClient) -> None:
    api.workspace.root.rmdir()
    assert (await caller.get("files/download/x.bin")).status_code == 404
    assert (await caller.get("status")).status_code == 200
    assert (await caller.post("files/upload", params=question(b"c"), content=b"c")).status_code == 200


async def test_a_caller_without_a_token_cannot_keep_a_connection(caller: httpx.AsyncClient) -> None:
    reply = await caller.get("status", headers={"Authorization": "Bearer wrong"})
    assert (reply.status_code, reply.headers["connection"]) == (401, "close")


async def test_a_driver_that_hangs_holds_up_only_the_status(
    api: Api, caller: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hangs() -> NvmlGpus:
        answers.wait(60)
        return look()

    api.status.look = hangs
    monkeypatch.setattr(status, "DRIVER_S", 0.05)
    replies = await asyncio.gather(*(caller.get("status") for _ in range(40)))
    assert {one.status_code for one in replies} == {503}
    assert (await caller.post("files/upload", params=question(b"c"), content=b"c")).status_code == 200
    answers.set()
    monkeypatch.setattr(status, "DRIVER_S", 20.0)
    assert (await caller.get("status")).status_code == 200
