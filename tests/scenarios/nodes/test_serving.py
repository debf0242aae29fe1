"""A model that a real machine serves: its software, its server, the message that it is ready, and a chat through it."""

from __future__ import annotations

import pytest

from tests.scenarios.nodes.conftest import Build
from tests.scenarios.nodes.test_own_api import api_of

pytestmark = pytest.mark.slow
SPEED = 20.0


@pytest.mark.parametrize("cloud", ["vast", "lambda"])
async def test_a_model_is_served_and_its_owner_chats_with_it(build: Build, cloud: str) -> None:
    async with build(cloud, clock_speed=SPEED) as here:
        place = here.town
        gpu = place.clouds[cloud].STAPLE
        line = f"/gpu provision 1x{gpu} 2h clouds={cloud} install=serve workload=serve model=org/tiny"
        await place.acked(place.ws.as_("alice").command(f'{line} for="a demo"'))
        await place.approve()
        await place.ready()
        said = await here.row_where(
            lambda row: any(one["name"] == "serve" and one["state"] == "done" for one in row.report.get("steps", ()))
        )
        done = [(one["name"], one["state"]) for one in said.report["steps"]]
        assert done == [(name, "done") for name in ("environment", "packages", "driver", "python packages", "serve")]
        await place.screens.wrote("alice", "is ready to serve")
        async with api_of(here) as caller:
            question = {"model": "org/tiny", "messages": [{"role": "user", "content": "one two three"}]}
            answer = await caller.post("/llm/chat", json=question)
            assert answer.json()["choices"][0]["message"]["content"] == "one two three"
            logs = await caller.get("/logs", params={"source": "serve"})
            assert "serving org/tiny on 127.0.0.1" in logs.text
        await place.finish()
        await here.nothing_left()


async def test_an_old_driver_installs_nothing_and_its_owner_reads_why(build: Build) -> None:
    async with build("vast", {"validate_login": False}, clock_speed=SPEED) as here:
        place = here.town
        place.clouds["vast"].engine.faults.arm("vast", "machine_old_driver")
        gpu = place.clouds["vast"].STAPLE
        await place.acked(place.ws.as_("alice").command(f'/gpu provision 1x{gpu} 2h clouds=vast install=train for="x"'))
        await place.approve()
        said = await here.row_where(
            lambda row: len(row.report.get("steps", ())) == 4 and row.report["steps"][2]["exit_code"]
        )
        assert [one["state"] for one in said.report["steps"]][:3] == ["done", "done", "failed"]
        await place.screens.wrote("alice", "failed at driver with exit code 1")
        await place.screens.wrote("alice", "is too old for install=train")
        await place.finish()
        await here.nothing_left()
