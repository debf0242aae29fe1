"""Following a job over the API: what is printed, and what the program ends with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from bot.cli.access.api_client import ApiClient, RefusedCall
from bot.cli.access.job_watch import PATIENCE_S, FollowedJob, JobWatch
from bot.cli.commands.run import followed
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from ledger.engine.db import Database
from ledger.kernel.job_state import JobState
from tests.services.nodes.test_job_results import RUN, startup
from tests.services.webhooks.test_subscriptions import ADA, ATLAS
from tests.support.agents import agent, listening, pass_time
from tests.support.clock import SteppedClock
from tests.support.world import World, checked_world

Step = Callable[[], Awaitable[Any]]


@pytest.fixture
async def one(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    async with checked_world(sqlite_db, clock) as built:
        yield built


@dataclass
class Script:
    """A clock by which, at each wait of the program, one thing happens in the world."""

    w: World
    steps: list[Step] = field(default_factory=list)
    step_s: float = 2.0

    def now(self) -> datetime:
        return self.w.clock.now()

    def monotonic(self) -> float:
        return self.w.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        if self.steps:
            await self.steps.pop(0)()
        else:
            self.w.clock.advance(self.step_s)


class Line(httpx.AsyncHTTPTransport):
    """A connection that can be cut."""

    is_cut = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.is_cut:
            raise httpx.ConnectError("cut")
        return await super().handle_async_request(request)


@dataclass
class Caller:
    """A program that handed over a job, and follows it."""

    w: World
    watch: JobWatch
    script: Script
    line: Line

    async def approve(self) -> None:
        await self.w.settle()
        await self.w.decide(self.watch.request_id)
        await self.w.settle()

    async def boots(self) -> None:
        await self.w.run(40, 20)
        await pass_time(self.w, 1)
        agent(self.w).machine = startup("waiting")
        await pass_time(self.w, 61)

    def reports(self, job: str, code: int | None = None, machine: dict[str, Any] | None = None) -> Step:
        async def step() -> None:
            node = agent(self.w)
            node.machine, node.job, node.job_exit_code = machine or startup("done"), job, code
            await pass_time(self.w, 61)

        return step

    async def follows(self, *steps: Step) -> FollowedJob:
        self.script.steps = list(steps)
        found = await self.watch.until_over()
        assert found is not None
        return found


@asynccontextmanager
async def calling(w: World, **job: Any) -> AsyncIterator[Caller]:
    """A program with a key of its own hands over a job."""
    made = await api_keys.create(w.ctx.db, w.ctx.labels, NewKey("atlas", "operator:ada"), ADA, w.clock.now())
    headers, line, script = {"Authorization": f"Bearer {made.data['token']}"}, Line(), Script(w)
    async with (
        listening(w) as url,
        httpx.AsyncClient(base_url=url, headers=headers, transport=line) as http,
    ):
        api = ApiClient(http)
        document = {"words": "1x4090 2h cloud=vast", "run": RUN, **job}
        first = await api.post("/sessions", document, "ci-1")
        assert (await api.post("/sessions", document, "ci-1"))["request_id"] == first["request_id"]
        yield Caller(w, JobWatch(api, first["request_id"], script), script, line)


async def test_a_job_is_followed_to_the_exit_code_of_its_command(
    one: World, capsys: pytest.CaptureFixture[str]
) -> None:
    async with calling(one) as caller:
        found = await caller.follows(
            caller.approve,
            caller.boots,
            caller.reports("running"),
            caller.reports("saving"),
            caller.reports("failed", 3),
        )
        assert (found.ends_with, found.document["ends_with"], found.document["job"]["exit_code"]) == (3, 3, 3)
        assert found.sentence.startswith(f"Job {found.request.id[-6:]} failed (exit code 3). It cost $")
        assert "; its session ends " in found.sentence
        lines = [line.partition(" from ")[0] for line in capsys.readouterr().err.splitlines()]
        assert lines[-5:] == [
            "session launching",
            "job queued. Start-up: 0 of 1 step done",
            "job running",
            "job saving",
            "job failed (exit code 3)",
        ]
        assert await caller.watch.end_failed_start(found) == ""


@pytest.mark.parametrize(("code", "ends_with"), [(0, 1), (None, 1), (137, 137)])
async def test_a_failed_job_never_ends_with_0(one: World, code: int | None, ends_with: int) -> None:
    async with calling(one) as caller:
        found = await caller.follows(caller.approve, caller.boots, caller.reports("failed", code))
        assert found.ends_with == ends_with


async def test_a_job_that_succeeded_ends_with_0(one: World) -> None:
    async with calling(one) as caller:
        found = await caller.follows(caller.approve, caller.boots, caller.reports("done", 0))
        assert found.ends_with == 0


async def test_a_start_up_that_failed_ends_the_session(one: World) -> None:
    w = one
    async with calling(w) as caller:
        broken = caller.reports("running", machine=startup("skipped", repo=128))
        found = await caller.follows(caller.approve, caller.boots, broken)
        assert (found.ends_with, found.job and found.job.failed_step) == (128, "repo")
        assert "Ending session" in await caller.watch.end_failed_start(found)
        assert "ending already" in await caller.watch.end_failed_start(found)
        await w.run(120, 30)
        (session,) = (await w.books()).sessions
        assert (session.job_state, session.end_code) == (JobState.FAILED, "work_failed")


async def test_a_machine_that_ended_first_has_a_code_of_its_own(one: World) -> None:
    w = one
    async with calling(w) as caller:

        async def ends() -> None:
            await w.end(caller.watch.request_id, actor=ATLAS)
            await w.run(120, 30)

        found = await caller.follows(caller.approve, caller.boots, caller.reports("running"), ends)
        assert (found.ends_with, found.job and found.job.state) == (75, JobState.INTERRUPTED)
        assert await caller.watch.log(found, 10) == []


async def test_a_request_that_will_not_run_says_why_by_its_code(one: World) -> None:
    w = one
    async with calling(w) as caller:

        async def rejects() -> None:
            await w.settle()
            await w.decide(caller.watch.request_id, action="reject", reason="too dear")

        found = await caller.follows(rejects)
        assert (found.ends_with, found.document["job"]) == (77, None)
        assert "is rejected. " in found.sentence


async def test_an_expired_request_and_one_without_an_offer_have_codes(one: World) -> None:
    w = one
    async with calling(w) as caller:

        async def expires() -> None:
            await w.settle()
            w.clock.advance(w.ctx.policy.request_ttl_s + 60)
            await w.settle()

        assert (await caller.follows(expires)).ends_with == 124


async def test_a_request_without_an_offer_has_a_code(one: World) -> None:
    async with calling(one, max_price="$0.001") as caller:
        assert (await caller.follows(one.settle)).ends_with == 69


async def test_a_service_that_is_away_for_a_while_is_waited_for(one: World, capsys: pytest.CaptureFixture[str]) -> None:
    w = one
    async with calling(w) as caller:

        async def cut() -> None:
            caller.line.is_cut = True

        async def back() -> None:
            caller.line.is_cut = False

        found = await caller.follows(caller.approve, caller.boots, cut, back, caller.reports("done", 0))
        assert found.ends_with == 0
        assert capsys.readouterr().err.count("can't be reached. The job continues") == 1
        caller.line.is_cut = True
        began = w.clock.now()
        with pytest.raises(httpx.ConnectError):
            await caller.watch.until_over()
        assert w.clock.now() - began >= timedelta(seconds=PATIENCE_S)
        caller.line.is_cut = False
        caller.watch.request_id = "req_nothing0"
        with pytest.raises(RefusedCall):
            await caller.watch.until_over()


async def test_following_ends_at_its_limit_and_at_a_ctrl_c_and_the_job_continues(
    one: World, capsys: pytest.CaptureFixture[str]
) -> None:
    w = one
    async with calling(w) as caller:
        caller.watch.limit_s = 60
        caller.script.steps = [caller.approve, caller.boots, caller.reports("running")]
        assert await followed(caller.watch, 5, as_json=False) == 124
        assert "It took longer than --timeout, and the job continues." in capsys.readouterr().err
        caller.watch.limit_s = None

        async def ctrl_c() -> None:
            raise asyncio.CancelledError

        caller.script.steps = [ctrl_c]
        with pytest.raises(asyncio.CancelledError):
            await followed(caller.watch, 5, as_json=False)
        short = caller.watch.request_id[-6:]
        said = capsys.readouterr().err
        assert f"the job continues. To follow it: `gpu-shopper run --follow {short}`." in said
        assert f"gpu-shopper shutdown {short}" in said


async def test_the_end_of_a_job_is_one_document_for_programs(one: World, capsys: pytest.CaptureFixture[str]) -> None:
    async with calling(one) as caller:
        caller.script.steps = [caller.approve, caller.boots, caller.reports("failed", 3)]
        assert await followed(caller.watch, 5, as_json=True) == 3
        said = capsys.readouterr()
        document = json.loads(said.out)
        assert (document["ends_with"], document["job"]["state"], document["log"]) == (3, "failed", [])
        assert "Its log can't be read. " in said.err
