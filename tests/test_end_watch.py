"""The thread of the end watchdog: its own connections, its copy, and the heartbeat."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.clock import SystemClock, TravelClock
from bot.end_watch import HEARTBEAT_S, EndWatch
from bot.main import slack_settings
from ledger.engine.db import Database
from migrations.run import upgrade
from tests.support.serving import serving
from tests.test_main import surroundings


async def test_a_heartbeat_is_sent_only_while_the_jobs_and_the_ends_are_well(tmp_path: Path) -> None:
    beats: list[str] = []

    async def monitor(request: Request) -> Response:
        beats.append(request.url.path)
        return Response()

    async with surroundings(tmp_path) as around, serving(Starlette(routes=[Route("/beat", monitor)])) as url:
        settings = around.settings()
        db = Database(settings.database)
        await upgrade(db)
        await db.close()
        clock = TravelClock(SystemClock())
        watch = EndWatch(settings, clock, slack_settings(settings))
        watch.well = lambda: True
        assert not await watch.heartbeat(), "nobody looks at the ends yet"
        watch.well = None
        watch.start()
        try:
            await watch.first_look()
            assert watch.writable
            async with asyncio.timeout(10):
                while not watch.healthy:  # noqa: ASYNC110 # The thread has a loop of its own, and looks after its first write.
                    await asyncio.sleep(0.01)
            assert watch.has_copy
            # Its own round of heartbeats began without a monitor, so that only this test sends one.
            watch.settings = around.settings(GPU_SHOPPER_HEARTBEAT_URL=f"{url}/beat")
            assert not await watch.heartbeat(), "nobody says that the jobs run"
            watch.well = lambda: False
            assert not await watch.heartbeat()
            assert beats == []
            watch.well = lambda: True
            await watch.heartbeat()
            assert beats == ["/beat"]
            watch.well = lambda: False
            clock.travel(HEARTBEAT_S)
            assert not await watch.heartbeat()
            assert beats == ["/beat"]
        finally:
            await watch.stop()


async def test_a_thread_that_fails_begins_again_and_one_that_ended_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.end_watch.EVERY_S", 0.01)
    async with surroundings(tmp_path) as around, asyncio.timeout(30):
        good = around.settings()
        db = Database(good.database)
        await upgrade(db)
        await db.close()
        bad = good.model_copy(update={"database_url": SecretStr("no-database://")})
        watch = EndWatch(bad, SystemClock(), slack_settings(good))
        watch.start()
        await watch.first_look()
        assert watch.problem == "not tried yet"
        watch.page("start", "Nobody can say this yet.")
        await watch.stop()
        watch.start()
        watch.settings = good
        while not watch.healthy:  # noqa: ASYNC110 # The thread tells nobody.
            await asyncio.sleep(0.01)
        await watch.stop()
        await watch.stop()
