"""What happens, as it happens: to whom it concerns, at least once, from where one stopped; and the figures."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.api.streams import MOST_STREAMS
from bot.rules.access.scopes import Scope
from bot.services.access import api_keys
from bot.services.access.api_keys import Principal, authenticate
from bot.services.audit import event_stream
from bot.services.audit.event_stream import Following
from bot.services.runtime.event_order import EventNumbering, number_all
from ledger.core.events import record
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.models import Event
from ledger.queries.audit import read_books
from tests.api.door import ADA, Door, code_of
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import ALICE, BOB


async def principal(door: Door, key: str) -> Principal:
    who = await authenticate(door.w.ctx.db, door.w.ctx.labels, key, door.w.clock.now())
    assert who is not None
    return who


async def begun(door: Door, key: str, after: str | None = None) -> Following:
    stream = await event_stream.begin(door.w.ctx, await principal(door, key), after)
    assert isinstance(stream, Following)
    return stream


async def look(stream: Following) -> Sequence[Event]:
    """One read of a stream, after what happened has its numbers."""
    await number_all(stream.ctx)
    return await stream.look()


async def test_everybody_hears_of_their_own_once_and_in_order(door: Door) -> None:
    w = door.w
    atlas, hermes, root = (
        await door.key("atlas"),
        await door.key("hermes"),
        await door.key("operator:root", scopes=("admin",)),
    )
    w.clock.advance(1)
    streams = {key: await begun(door, key) for key in (atlas, hermes, root)}
    mine = await door.asked(atlas, candidates=["vast"])
    heard = [await look(streams[atlas]), await look(streams[atlas])]
    assert [(one.kind, one.after) for one in heard[0]] == [("request.made", "quoting"), ("request.moved", "pending")]
    assert heard[1] == []
    assert (await w.decide(mine)).ok
    await w.settle()
    w.clock.advance(30)
    more = await look(streams[atlas])
    assert {"request.moved", "session.moved", "instance.moved"} <= {one.kind for one in more}
    assert [one.id for one in more] == sorted(one.id for one in more)
    assert await look(streams[hermes]) == []
    everything = [one.id for one in (await read_books(w.ctx.db)).events if one.kind != "api_key.created"]
    assert [one.id for one in await look(streams[root])] == everything
    # From where one stopped: what follows, each once.
    resumed = await begun(door, atlas, heard[0][-1].id)
    assert [one.id for one in await resumed.look()] == [one.id for one in more]
    refused = await event_stream.begin(w.ctx, await principal(door, atlas), "evt_0000000000000000")
    assert getattr(refused, "code", "") == "unknown_event"
    await w.end(mine, BOB)
    await w.settle()


@pytest.mark.both_databases
async def test_what_commits_late_is_heard_all_the_same(door: Door) -> None:
    w, root = door.w, await door.key("operator:root", scopes=("admin",))
    w.clock.advance(1)
    stream = await begun(door, root)

    async def happen(at_s: float, times: int = 1) -> None:
        at = w.clock.now() + timedelta(seconds=at_s)
        async with w.ctx.db.write() as tx:
            for _ in range(times):
                record(tx, at=at, actor=ALICE, subject=new_id("req", at), kind=EventKind.REQUEST_MADE)

    w.clock.advance(60)
    await happen(0)
    assert len(await look(stream)) == 1
    await happen(-3600)
    late = await look(stream)
    assert [one.at for one in late] == [w.clock.now() - timedelta(hours=1)]
    await happen(0, 550)
    assert [(len(await look(stream)), stream.behind) for _ in range(2)] == [(500, True), (50, False)]
    assert await look(stream) == []
    assert (await look(await begun(door, root, late[-1].id)))[0].at == w.clock.now()


async def test_a_stream_that_sees_little_reads_a_bounded_part_at_once(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, hermes = door.w, await door.key("hermes")
    stream = await begun(door, hermes)
    monkeypatch.setattr(event_stream, "SCANNED", 3)
    async with w.ctx.db.write() as tx:
        for _ in range(7):
            record(tx, at=w.clock.now(), actor=ALICE, subject="req_others", kind=EventKind.REQUEST_MADE)
    mine = await door.asked(hermes)
    looks = [([one.subject for one in await look(stream)], stream.behind) for _ in range(3)]
    assert looks == [([], True), ([], True), ([mine, mine], False)]


async def test_a_waiting_stream_wakes_when_an_event_is_numbered_here_or_by_another_replica(door: Door) -> None:
    """No time passes for the stream, so only the hint can have woken it."""
    w, root = door.w, await door.key("operator:root", scopes=("admin",))
    stream, numbering, other = await begun(door, root), EventNumbering(w.ctx), w.replica()
    await numbering.look()
    stream.ctx = replace(stream.ctx, clock=SteppedClock(auto=False))
    batches = stream.stream()
    assert await anext(batches) == []
    for number in (numbering.look, EventNumbering(other.ctx).look):
        waiting = asyncio.ensure_future(anext(batches))
        request_id = await door.asked(root)
        assert not waiting.done()
        assert await number() > 0
        await numbering.look()
        assert {one.subject for one in await asyncio.wait_for(waiting, 5)} == {request_id}
    await other.ctx.db.close()


async def test_the_stream_over_http(sqlite_door: Door) -> None:
    door, w = sqlite_door, sqlite_door.w
    atlas = await door.key()
    app = build_api(Dependencies(w.ctx, ApiSettings("C0GPU")), {})
    async with serving(app) as url, httpx.AsyncClient(base_url=url, trust_env=False) as http:
        headers = {"Authorization": f"Bearer {atlas}"}
        assert (await http.get("/api/v1/events")).status_code == 401
        async with http.stream("GET", "/api/v1/events", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.aiter_lines()
            assert await anext(lines) == ": connected"
            reading = asyncio.create_task(_first(lines))
            request_id = await door.asked(atlas)
            while not reading.done():
                await EventNumbering(w.ctx).look()
                w.clock.advance(1)
                await asyncio.sleep(0)
            told = reading.result()
            assert (told["kind"], told["subject"], told["actor"]) == ("request.made", request_id, "consumer:atlas")
            # Another process, as after a restart, goes on behind the last event that was heard.
            again = {**headers, "Last-Event-ID": told["id"]}
            async with (
                serving(build_api(Dependencies(w.ctx, ApiSettings("C0GPU")), {})) as restarted,
                http.stream("GET", f"{restarted}/api/v1/events", headers=again) as resumed,
            ):
                reading = asyncio.create_task(_first(resumed.aiter_lines(), but=told["id"]))
                while not reading.done():
                    w.clock.advance(1)
                    await asyncio.sleep(0)
                assert (reading.result()["kind"], reading.result()["before"]) == ("request.moved", "quoting")
            # A revoked key hears nothing more: its stream ends.
            await api_keys.revoke(w.ctx.db, atlas.split("_")[1], ADA, w.clock.now())
            rest = asyncio.create_task(_rest(lines))
            while not rest.done():
                w.clock.advance(1)
                await asyncio.sleep(0)
            assert (await http.get("/api/v1/events", headers=headers)).status_code == 401


async def _first(lines: Any, but: str = "") -> dict[str, Any]:
    async for line in lines:
        if line.startswith("data: ") and (found := json.loads(line.removeprefix("data: ")))["id"] != but:
            return dict(found)
    raise AssertionError("the stream ended")


async def _rest(lines: Any) -> list[str]:
    return [line async for line in lines]


async def test_a_key_has_so_many_streams(sqlite_door: Door) -> None:
    door = sqlite_door
    key = await door.key()
    deps = Dependencies(door.w.ctx)
    deps.streams[key.split("_")[1]] = 4
    app = build_api(deps, {})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://bot") as http:
        answer = await http.get("/api/v1/events", headers={"Authorization": f"Bearer {key}"})
    assert (answer.status_code, code_of(answer)) == (429, "too_many_streams")


async def test_streams_that_begin_at_the_same_moment_are_counted(sqlite_door: Door) -> None:
    key = await sqlite_door.key()
    deps = Dependencies(sqlite_door.w.ctx)
    headers = {"Authorization": f"Bearer {key}"}
    async with serving(build_api(deps, {})) as url, AsyncExitStack() as opened:
        http = await opened.enter_async_context(httpx.AsyncClient(base_url=url, trust_env=False))
        asked = [
            http.send(http.build_request("GET", "/api/v1/events", headers=headers), stream=True) for _ in range(20)
        ]
        answers = await asyncio.gather(*asked)
        assert Counter(one.status_code for one in answers) == {200: MOST_STREAMS, 429: 20 - MOST_STREAMS}
        strange = {**headers, "Last-Event-ID": "evt_0000000000000000"}
        deps.streams[key.split("_")[1]] -= 1
        assert (await http.get("/api/v1/events", headers=strange)).status_code == 422
        deps.streams[key.split("_")[1]] += 1
        for one in answers:
            await one.aclose()
    assert deps.streams.total() == 0


async def test_the_figures(door: Door) -> None:
    w = door.w
    monitor = await door.key("prometheus", scopes=("metrics:read",))
    assert Scope.METRICS_READ not in (await principal(door, await door.key("atlas"))).scopes
    await w.running(candidates=("vast",))
    await w.ask()
    answer = await door.http.get("/metrics", headers={"Authorization": f"Bearer {monitor}"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    said = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert said['gpu_shopper_requests{state="quoting"}'] == "1"
    assert said['gpu_shopper_sessions{state="running"}'] == "1"
    assert said['gpu_shopper_instances{cloud="vast",state="live"}'] == "1"
    assert float(said['gpu_shopper_usd_per_hour{cloud="vast"}']) > 0
    assert (await door.http.get("/metrics")).status_code == 401
    atlas = await door.key("hermes")
    refused = await door.http.get("/metrics", headers={"Authorization": f"Bearer {atlas}"})
    assert (refused.status_code, code_of(refused)) == (403, "scope_missing")
