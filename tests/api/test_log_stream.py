"""A log over REST as a stream: for whom, how many at once, and until when."""

from __future__ import annotations

import json

import httpx

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.api.streams import MOST_STREAMS
from tests.api.door import Door, code_of
from tests.api.test_sessions import running
from tests.services.nodes.test_key_writes import machine
from tests.support.serving import serving
from tests.support.wire import RealReach


async def test_a_log_is_streamed_to_its_owner_until_the_session_ends(sqlite_door: Door) -> None:
    door, w = sqlite_door, sqlite_door.w
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True
    atlas, hermes = await door.key("atlas"), await door.key("hermes")
    session = await running(door, atlas)
    inside = (await machine(w))[1]
    inside.files["job.log"] = b"step 1\nstep 2\n"
    deps = Dependencies(w.ctx, ApiSettings("C0GPU"))
    path = f"/api/v1/sessions/{session}/logs"
    asked = {"follow": "true", "lines": "1"}
    async with serving(build_api(deps, {})) as url, httpx.AsyncClient(base_url=url, trust_env=False) as http:
        own = {"Authorization": f"Bearer {atlas}"}
        other = await http.get(path, params=asked, headers={"Authorization": f"Bearer {hermes}"})
        assert (other.status_code, code_of(other)) == (404, "unknown_id")
        async with http.stream("GET", path, params=asked, headers=own) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            events = (line async for line in answer.aiter_lines() if line)
            assert await anext(events) == ": connected"
            assert await anext(events) == 'data: {"line": "step 2"}'
            inside.files["job.log"] += b"step 3\n"
            assert await anext(events) == 'data: {"line": "step 3"}'
            assert sum(deps.streams.values()) == 1
            assert (await door.call("DELETE", f"/sessions/{session}", atlas)).status_code == 202
            w.clock.advance(5)
            inside.files["job.log"] += b"step 4\n"
            last = [line async for line in events][-2:]
            assert last[0] == "event: end"
            assert json.loads(last[1].removeprefix("data: "))["sentence"].endswith("is ending.")
        assert sum(deps.streams.values()) == 0
        refused = await http.get(path, params=asked, headers=own)
        assert (refused.status_code, code_of(refused)) == (409, "already_ending")
        assert sum(deps.streams.values()) == 0
        deps.streams[atlas.split("_")[1]] = MOST_STREAMS
        refused = await http.get(path, params=asked, headers=own)
        assert (refused.status_code, code_of(refused)) == (429, "too_many_streams")
