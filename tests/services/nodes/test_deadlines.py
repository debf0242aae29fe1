"""What an instance is told of its approved end, read by the agent's own code; and what its own end leads to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.agent.deadline import GRACE_S, TRIES_S, Deadline, Signed
from bot.agent.self_termination import end_machine
from bot.agent.settings import CLOUD_URL, first_deadline, read
from bot.rules.instances.fetch_agent import start_agent
from bot.services.instances import reconcile
from bot.services.instances.transitions import ENDED_ITSELF
from bot.services.nodes.checkins import Checkins
from bot.services.runtime import recovery_mode
from bot.services.runtime.agent_archive import AgentArchive
from bot.services.runtime.clock_guard import GuardedClock
from bot.wire.checkin import Checkin, CheckinAnswer
from ledger.core.writes import amend
from ledger.engine.db import Database
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.end_reason import EndReason
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance, Session
from providers.sandbox.server import build_app
from providers.sandbox.vast.sandbox import VastSandbox
from tests.services.runtime.test_recovery_mode import rowless
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import World, checked_world

AFTER = timedelta(seconds=GRACE_S - TRIES_S)
#: Nobody listens there, so no agent of the sandbox reports.
NODE_URL = "http://127.0.0.1:9"


@pytest.fixture
async def w(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service that its instances can reach."""
    async with checked_world(sqlite_db, clock) as built:
        built.ctx = replace(built.ctx, node_url=NODE_URL)
        yield built


class Node:
    """An instance with the agent's own deadline, which counts on a boot clock that began with the instance."""

    def __init__(self, w: World, cloud: str, number: int = 0) -> None:
        found = [one for one in w.clouds[cloud].instances() if one.alive][number]
        self.w, self.cloud, self.ref = w, w.clouds[cloud], str(found.ref)
        self.settings = read({**self.cloud.variables(self.ref), **self.cloud.injected(self.ref)})
        self.deadline = Deadline(self.settings.instance, self.settings.public_key, w.clock.monotonic)
        self.seq = 0

    def first(self) -> bool:
        """Accept what its environment says, as at its start."""
        return self.deadline.accept(first_deadline(self.settings.environment))

    async def check_in(self) -> CheckinAnswer:
        """Check in, and accept what comes back."""
        self.seq += 1
        answer = await Checkins(self.w.ctx).take(self.settings.boot_token, Checkin(seq=self.seq))
        assert isinstance(answer, CheckinAnswer)
        signed = answer.deadline
        assert self.deadline.accept(Signed(signed.message, signed.signature, self.w.clock.monotonic()))
        return answer

    async def end_itself(self) -> str:
        """Send to the sandbox, over HTTP, what the machine's own key may send."""
        async with serving(build_app(self.w.clouds, tick_s=None)) as url:
            environment = {**self.settings.environment, CLOUD_URL: f"{url}/{self.cloud.name}"}
            return await asyncio.to_thread(end_machine, environment, 1)


def created(w: World) -> str:
    """The start script of the newest container at Vast.ai."""
    vast = w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    return list(vast.account.instances.values())[-1].onstart


def due_in(node: Node) -> timedelta:
    left_s = node.deadline.left_s()
    assert left_s is not None
    return timedelta(seconds=round(left_s))


async def session_of(w: World) -> Session:
    return (await w.books()).sessions[-1]


async def left(w: World) -> timedelta:
    deadline = (await session_of(w)).deadline
    assert deadline is not None
    return timedelta(seconds=round((deadline - w.clock.now()).total_seconds()))


async def test_the_approved_end_comes_with_the_create_and_each_check_in(w: World) -> None:
    await w.running(candidates=("vast",))
    node = Node(w, "vast")
    assert node.first()
    # Without any check-in the boot is not subtracted, so that a wrong calendar clock can never end it too early.
    assert due_in(node) == timedelta(hours=2) + AFTER
    await node.check_in()
    assert due_in(node) == await left(w) + AFTER
    w.clock.advance(1800)
    assert due_in(node) == await left(w) + AFTER
    assert not node.first()


async def test_the_start_script_starts_the_agent_where_one_is_built(w: World) -> None:
    await w.running(candidates=("vast",))
    assert "agent.pyz" not in created(w)
    w.ctx = replace(w.ctx, agent=AgentArchive(b"PK", "ab" * 32))
    await w.running(candidates=("vast",))
    assert start_agent() in created(w)
    env = Node(w, "vast", -1).settings.environment
    assert env["GPU_SHOPPER_AGENT_URL"] == f"{NODE_URL}/agent.pyz"
    assert env["GPU_SHOPPER_AGENT_SHA256"] == "ab" * 32


async def test_an_approved_extension_moves_it_and_nothing_else_does(w: World) -> None:
    request_id = await w.running(candidates=("vast",))
    node = Node(w, "vast")
    await node.check_in()
    asked = await w.more(request_id)
    await w.settle()
    await node.check_in()
    assert due_in(node) == await left(w) + AFTER < timedelta(hours=2) + AFTER
    assert (await w.decide(str(asked.data["request_id"]))).ok
    await w.settle()
    await node.check_in()
    assert due_in(node) == await left(w) + AFTER > timedelta(hours=2, minutes=30)


async def test_during_recovery_mode_the_sessions_own_end_is_signed(w: World) -> None:
    await w.running(candidates=("vast",))
    node = Node(w, "vast")
    await rowless(w)
    await w.run(120, 30)
    assert await recovery_mode.now_on(w.ctx.db)
    await node.check_in()
    assert due_in(node) == await left(w) + AFTER


async def test_a_clock_that_no_cloud_confirmed_shortens_no_end(w: World) -> None:
    """A service that starts three hours ahead would otherwise tell its machines that their time has passed."""
    await w.running(candidates=("vast",))
    node = Node(w, "vast")
    await node.check_in()
    before = due_in(node)
    w.machine.off = timedelta(hours=3)
    w.ctx = replace(w.ctx, clock=GuardedClock(w.machine, confirm_s=60))
    await node.check_in()
    assert due_in(node) == before
    w.machine.off = timedelta()


async def test_a_checkpoint_hold_is_approved_time_too(w: World) -> None:
    await w.running(candidates=("vast",))
    node = Node(w, "vast")
    end = w.clock.now() + timedelta(hours=3)
    async with w.ctx.db.write() as tx:
        await amend(tx, Instance, node.settings.instance, checkpoint_step=CheckpointStep.HELD, checkpoint_until=end)
    await node.check_in()
    assert due_in(node) == timedelta(hours=3) + AFTER
    async with w.ctx.db.write() as tx:
        changes = {"checkpoint_step": None, "checkpoint_until": None}
        await amend(tx, Instance, node.settings.instance, **changes)
    await node.check_in()
    assert due_in(node) == await left(w) + AFTER


@pytest.mark.parametrize("cloud", ["vast", "runpod"])
@pytest.mark.slow
async def test_an_instance_that_ended_itself_after_its_time_is_closed_booked_and_not_replaced(
    w: World, cloud: str
) -> None:
    """Nobody was here when its time was over: the service was away, and starts again afterwards."""
    await w.running(candidates=(cloud,))
    node = Node(w, cloud)
    await node.check_in()
    w.clock.advance(due_in(node))
    assert w.alive()
    assert await node.end_itself() == ""
    assert w.alive() == []
    await w.run(300, 30)
    books = await w.books()
    assert [row.state for row in books.instances] == [InstanceState.GONE]
    assert books.sessions[-1].state is SessionState.TERMINATED
    assert len(w.engine.creates) == 1
    booked = sum((one.amount_usd for one in books.entries if one.kind in ("accrue", "true_up")), Decimal(0))
    assert abs(booked - w.bill()) < Decimal("0.02")
    assert books.sessions[-1].end_code == EndReason.RESERVATION_OVER


async def test_an_end_behind_the_approved_time_is_no_loss(w: World) -> None:
    """The listing is read before the end of the session is looked at."""
    await w.running(candidates=("vast",))
    node = Node(w, "vast")
    await node.check_in()
    w.clock.advance(due_in(node))
    assert await node.end_itself() == ""
    for _ in range(10):
        w.clock.advance(30)
        await reconcile.observe(w.ctx, "vast")
    books = await w.books()
    assert (books.instances[0].state, books.instances[0].outcome) == (InstanceState.GONE, ENDED_ITSELF)
    assert (books.sessions[-1].state, books.sessions[-1].end_code) == (
        SessionState.TERMINATED,
        EndReason.RESERVATION_OVER,
    )
    assert len(books.instances) == 1


@pytest.mark.parametrize("cloud", ["vast", "runpod"])
async def test_the_key_of_an_instance_opens_nothing_else(w: World, cloud: str) -> None:
    await w.running(candidates=(cloud,))
    one = Node(w, cloud)
    mine = one.settings
    other = {"CONTAINER_ID": "1"} if cloud == "vast" else {"RUNPOD_POD_ID": "abcdefghijklmn"}
    one.settings = replace(mine, environment={**mine.environment, **other})
    said = await one.end_itself()
    assert "can't end itself and tries again" in said
    assert w.alive()
    assert (mine.environment.get("CONTAINER_API_KEY") or mine.environment["RUNPOD_API_KEY"]) not in said


@pytest.mark.parametrize("cloud", ["lambda", "tensordock"])
async def test_where_there_is_no_facility_it_says_so(w: World, cloud: str) -> None:
    await w.running(candidates=(cloud,))
    assert "no way for a machine to end itself" in await Node(w, cloud).end_itself()
    assert w.alive()
