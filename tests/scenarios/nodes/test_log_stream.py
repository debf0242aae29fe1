"""The log of a job on a real machine, streamed by the service to who has no SSH key, until the session ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from tests.api.door import ADA
from tests.scenarios.nodes.conftest import Build
from tests.scenarios.nodes.test_jobs import SPEED
from tests.scenarios.nodes.test_own_api import _labels

pytestmark = pytest.mark.slow
COUNTS = "for i in $(seq 1 2000); do echo step $i; sleep 0.1; done"


async def until(events: AsyncIterator[str], text: str) -> str:
    """Return the next event with this text."""
    async with asyncio.timeout(40):
        async for event in events:
            if text in event:
                return event
    raise AssertionError("the stream ended")


async def test_a_job_is_followed_over_rest_until_its_session_ends(build: Build) -> None:
    async with build("vast", {"same_person": [["U0ALICE", ADA.ref]]}, clock_speed=SPEED) as here:
        place = here.town
        await place.ask(f'run="{COUNTS}"')
        await place.approve()
        await place.ready()
        session = (await place.books()).sessions[-1]
        made = await api_keys.create(place.db, _labels(), NewKey(ADA.ref), ADA, place.clock.now())
        headers = {"Authorization": f"Bearer {made.data['token']}"}
        url = f"http://127.0.0.1:{place.environment['GPU_SHOPPER_PORT']}"
        path = f"/api/v1/sessions/{session.id}/logs"
        async with (
            httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30) as http,
            http.stream("GET", path, params={"follow": "true"}) as answer,
        ):
            assert answer.status_code == 200
            events = answer.aiter_lines()
            first = json.loads((await until(events, '"step ')).removeprefix("data: "))["line"]
            later = f"step {int(first.removeprefix('step ')) + 10}"
            await until(events, f'{{"line": "{later}"}}')
            await place.terminate()
            await until(events, "event: end")
            assert json.loads((await until(events, "data: ")).removeprefix("data: "))["sentence"]
        await place.gone()
        await place.comes_to_rest()
        await here.nothing_left()
