"""Logs by the API: their end, what is added, and what another program does to the file meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from bot.agent.api import logs
from bot.agent.api.app import Api

LINES = [f"step {n}\n" for n in range(20_000)]


@pytest.fixture
def log(api: Api) -> Path:
    (api.folder / "job").mkdir()
    return api.folder / "job/job.log"


@pytest.mark.parametrize(("tail", "count"), [("0", 0), ("1", 1), ("7", 7), ("10000", 10_000)])
async def test_the_last_lines(caller: httpx.AsyncClient, log: Path, tail: str, count: int) -> None:
    log.write_text("".join(LINES))
    assert (await caller.get("logs", params={"tail": tail})).text == "".join(LINES[len(LINES) - count :])
    log.write_text("".join(LINES) + "without an end")
    assert (await caller.get("logs", params={"tail": "2"})).text == f"{LINES[-1]}without an end"


async def test_nothing_yet_and_bytes_that_are_no_text(caller: httpx.AsyncClient, log: Path) -> None:
    assert (await caller.get("logs")).text == ""
    log.write_bytes(b"\xff\xfe\x00\x1b[31m")
    assert (await caller.get("logs")).content == b"\xff\xfe\x00\x1b[31m"


@pytest.mark.parametrize("source", ["agent", "serve", "startup"])
async def test_each_source_has_its_file(api: Api, caller: httpx.AsyncClient, source: str) -> None:
    (api.folder / f"{source}.log").write_text(source)
    assert (await caller.get("logs", params={"source": source})).text == source


@pytest.mark.parametrize(
    "asked", [{"source": "../../etc/passwd"}, {"tail": "-1"}, {"tail": "10001"}, {"follow": "yes"}], ids=repr
)
async def test_what_is_wrong_has_a_sentence(caller: httpx.AsyncClient, asked: dict[str, str]) -> None:
    reply = await caller.get("logs", params=asked)
    assert (reply.status_code, "must be" in reply.json()["detail"]) == (400, True)


async def test_links_and_pipes_are_not_read(api: Api, caller: httpx.AsyncClient, log: Path) -> None:
    (api.folder / "secret").write_text("secret")
    log.symlink_to(api.folder / "secret")
    assert (await caller.get("logs")).text == ""
    log.unlink()
    os.mkfifo(log)
    assert (await caller.get("logs")).text == ""


async def read_until(lines: AsyncIterator[str], text: str) -> list[str]:
    """Read the lines that come, up to this one."""
    found: list[str] = []
    async with asyncio.timeout(20):
        async for line in lines:
            found.append(line)
            if text in line:
                return found
    raise AssertionError(found)


async def test_it_is_followed_from_before_it_exists_through_rotation_and_truncation(
    api: Api, caller: httpx.AsyncClient, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOOK_S", 0.01)
    async with caller.stream("GET", "logs", params={"follow": "true", "tail": "1"}) as reply:
        lines = reply.aiter_lines()
        log.write_text("first\n")
        assert await read_until(lines, "first") == ["first"]
        with log.open("a") as file:
            file.write("second\n")
        assert await read_until(lines, "second") == ["second"]
        log.rename(log.with_name("job.log.1"))
        log.write_text("new 1\nnew 2\n")
        assert await read_until(lines, "new 2") == ["new 1", "new 2"]
        os.truncate(log, 0)
        await asyncio.sleep(0.05)
        with log.open("a") as file:
            file.write("x\n")
        assert await read_until(lines, "x") == ["x"]
        assert api.logs.followed == 1
    async with asyncio.timeout(20):
        while api.logs.followed:
            await caller.get("openapi.json")


async def test_only_so_many_follow(api: Api, caller: httpx.AsyncClient, log: Path) -> None:
    api.logs.followed = logs.MOST_FOLLOWED
    reply = await caller.get("logs", params={"follow": "true"})
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "10")
    assert (await caller.get("logs")).status_code == 200
