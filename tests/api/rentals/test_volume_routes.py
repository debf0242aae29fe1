"""Network volumes over HTTP and at the terminal: asked for, listed, extended and deleted; a person approves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from typer.testing import CliRunner

from bot.api.app import build_api, routes
from bot.api.dependencies import ApiSettings, Dependencies
from bot.cli.access.api_client import ApiClient
from bot.cli.access.in_process_api import _AsOperator
from bot.cli.commands.mcp import Tools
from bot.cli.lazy import build
from bot.rules.access.scopes import PLAIN
from bot.services.access.api_keys import Principal
from ledger.engine.db import Database
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import SessionState
from tests.api.door import ADA, Door, code_of, opened
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import BOB, checked_world

BODY = {"name": "data", "size": "200GB", "cloud": "runpod", "time": "2d", "regions": ["US-KS-2"], "reason": "corpus"}


@pytest.fixture
async def door(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[Door]:
    """The API over a service whose clouds rent out volumes."""
    async with checked_world(sqlite_db, clock, volumes=True) as w, opened(w) as made:
        yield made


async def test_the_same_call_again_asks_once(door: Door) -> None:
    key = await door.key()
    head = {"headers": {"Idempotency-Key": "once"}}
    first = await door.call("POST", "/volumes", key, json=BODY, **head)
    again = await door.call("POST", "/volumes", key, json=BODY, **head)
    assert (again.status_code, again.json()) == (202, first.json())
    other = await door.call("POST", "/volumes", key, json={**BODY, "name": "other"}, **head)
    assert code_of(other) == "idempotency_mismatch"
    assert len((await door.w.books()).requests) == 1


async def approved(door: Door, key: str) -> str:
    answer = await door.call("POST", "/volumes", key, json=BODY)
    assert answer.status_code == 202, answer.text
    await door.w.settle()
    request_id = str(answer.json()["request_id"])
    assert (await door.w.decide(request_id, BOB)).ok
    await door.w.run(60, 20)
    return request_id


async def test_a_volume_is_asked_for_listed_extended_and_deleted(door: Door) -> None:
    key = await door.key()
    assert (await door.call("GET", "/volumes", key)).json() == []
    request_id = await approved(door, key)
    request = await door.request(key, request_id)
    assert (request["kind"], request["reason"]) == (RequestKind.VOLUME, "corpus")
    (one,) = (await door.call("GET", "/volumes", key)).json()
    assert (one["name"], one["cloud"], one["region"], one["size_gb"]) == ("data", "runpod", "US-KS-2", 200)
    assert (one["path"], one["state"]) == ("/volumes/data", SessionState.RUNNING)
    more = await door.call("POST", f"/sessions/{one['session_id']}/extend", key, json={"hours": "60d"})
    assert more.status_code == 202, more.text
    ended = await door.call("DELETE", f"/sessions/{one['session_id']}", key)
    assert ended.status_code == 202, ended.text
    assert "will be deleted" in ended.json()["sentence"]
    await door.w.run(300, 20)
    assert (await door.call("GET", "/volumes", key)).json() == []


@pytest.mark.parametrize(
    ("changes", "status", "code", "said"),
    [
        ({"name": "D 1"}, 422, "bad_volume", "is not a volume name"),
        ({"size": "huge"}, 422, "bad_volume", "After the name, write the size"),
        ({"size": "5GB"}, 422, "bad_volume", "10 to 4,096 GB"),
        ({"time": "soon"}, 422, "bad_volume", "is not a time"),
        ({"cloud": "vast"}, 422, "no_volumes", "vast has no network volumes. These have them: runpod, lambda."),
        ({"name": " "}, 422, "bad_volume", "is not a volume name"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_sentence_of_the_language(
    door: Door, changes: dict[str, str], status: int, code: str, said: str
) -> None:
    answer = await door.call("POST", "/volumes", await door.key(), json={**BODY, **changes})
    assert (answer.status_code, code_of(answer)) == (status, code)
    assert said in answer.json()["detail"]
    assert len((await door.w.books()).requests) == 0


async def test_a_job_names_a_volume(door: Door) -> None:
    key = await door.key()
    await approved(door, key)
    job = {"resources": {"gpu": "A100-SXM-80GB"}, "hours": 2, "volume": "data"}
    assert (await door.call("POST", "/sessions", key, json=job)).status_code == 202
    nowhere = await door.call("POST", "/sessions", key, json={**job, "volume": "other"})
    assert (nowhere.status_code, code_of(nowhere)) == (422, "no_volume")
    elsewhere = await door.call("POST", "/sessions", key, json={**job, "candidates": ["vast"]})
    assert (elsewhere.status_code, code_of(elsewhere)) == (409, "volume_elsewhere")


async def test_the_terminal_does_the_same(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    w, key = door.w, await door.key("operator:ada")
    async with serving(build_api(Dependencies(w.ctx, ApiSettings("C0GPU")), {})) as url:
        monkeypatch.setenv("GPU_SHOPPER_URL", url)
        monkeypatch.setenv("GPU_SHOPPER_API_KEY", key)

        async def run(*arguments: str) -> tuple[int, str]:
            result = await asyncio.to_thread(CliRunner().invoke, build(), ["volume", *arguments])
            return result.exit_code, result.output

        assert "You have no volumes." in (await run("list"))[1]
        code, said = await run("create", "data", "200GB", "--cloud", "runpod", "--region", "US-KS-2", "--for", "2d")
        assert (code, "getting offers from runpod" in said) == (0, True), said
        await w.settle()
        (request,) = (await w.books()).requests
        assert (await w.decide(request.id, BOB)).ok
        await w.run(60, 20)
        listed = (await run("list"))[1]
        assert all(part in listed for part in ("data", "200 GB", "runpod", "US-KS-2", "running", "$0.019/h"))
        assert "Asked for 168 hours more" in (await run("extend", "data", "7d", "a", "longer", "run"))[1]
        missing = await run("delete", "other")
        assert (missing[0], 'You have no volume "other". Your volumes: data.' in missing[1]) == (1, True), missing
        assert (await run("delete", "data"))[0] == 0
    await w.run(300, 20)
    assert (await w.books()).sessions[0].state is SessionState.TERMINATED


async def test_an_agent_asks_and_a_person_approves(door: Door) -> None:
    app = routes({})
    app.state.deps = Dependencies(door.w.ctx, ApiSettings("C0GPU"))
    here = httpx.ASGITransport(app=_AsOperator(app, Principal("", ADA, ADA, frozenset(PLAIN))))
    async with httpx.AsyncClient(transport=here, base_url="http://here") as http:
        tools = Tools(ApiClient(http))
        assert await tools.volumes() == "You have no network volumes."
        assert "getting offers from runpod" in await tools.create_volume("data", "200GB", "2d", "runpod", "corpus")
        await door.w.settle()
        (request,) = (await door.w.books()).requests
        assert (await door.w.decide(request.id, BOB)).ok
        await door.w.run(60, 20)
        assert (await tools.volumes()).startswith("data: 200 GB at runpod in ")
        assert (await tools.create_volume("data", "5GB")).startswith("Refused (bad_volume)")
