"""A process that dies between an order and its mark: the order is read again, and nothing is done twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from bot.rules.policy.policy import Policy
from bot.services.access import delegation
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState, SessionState
from tests.services.access.test_ssh_keys import public
from tests.slack.conftest import APPROVERS, Stage, staged
from tests.support.clock import SteppedClock

DAVE = Actor(ActorKind.SLACK, "U0DAVE")


@asynccontextmanager
async def dying(stage: Stage) -> AsyncIterator[None]:
    """What is worked on meanwhile is done and committed, and never marked as done."""
    with pytest.MonkeyPatch.context() as death:
        death.setattr(stage.ctx.inbox, "finish", lambda _key: None)
        yield


async def comes_back(stage: Stage) -> int:
    """The lease of what was left ends, and another process takes it up."""
    stage.w.clock.advance(stage.ctx.timing.claim_ttl_s + 1)
    count = await stage.door.recover(stage.w.clock.now())
    await stage.settle()
    await stage.w.run(20, 20)
    return count


async def session_state(stage: Stage) -> SessionState:
    return (await stage.w.books()).sessions[-1].state


async def counted(stage: Stage, kind: str) -> int:
    return [event.kind for event in (await stage.w.books()).events].count(kind)


async def test_orders_about_a_session_are_carried_out_once(stage: Stage) -> None:
    message = await stage.ask('/gpu provision 1x4090 6h provider=vast for="once"')
    await stage.click("bob", message, stage.approve_button(message))
    await stage.w.run(40, 20)
    session = (await stage.w.books()).sessions[-1]
    async with dying(stage):
        await stage.command("alice", f"/gpu restart {session.id}")
        await stage.command("alice", f"/gpu stop {session.id}")
        await stage.w.run(20, 20)
    assert await session_state(stage) is SessionState.STOPPED
    await stage.command("alice", f"/gpu start {session.id}")
    await stage.w.run(40, 20)
    assert await comes_back(stage) == 2
    assert await session_state(stage) is SessionState.RUNNING
    assert [await counted(stage, f"instance.{order}") for order in ("restart", "stop")] == [1, 1]
    async with dying(stage):
        await stage.command("alice", f"/gpu done {session.id} success preserve")
    assert await comes_back(stage) == 1
    assert await counted(stage, "session.work_over") == 1


async def test_what_was_started_without_an_approval_is_bought_once(sqlite_db: Database, clock: SteppedClock) -> None:
    named = Policy(
        approvers=APPROVERS,
        break_glass=("U0ALICE",),
        break_glass_usd=Decimal(50),
        break_glass_hours=Decimal(2),
        failover=False,
    )
    async with staged(sqlite_db, clock, policy=named) as stage:
        await stage.ask('/gpu provision 1x4090 2h provider=vast for="once"')
        request_id = (await stage.w.books()).requests[-1].id
        stage.w.withdraw((await stage.w.view(request_id)).options[0])  # Its create is refused, and it is asked again.
        async with dying(stage):
            await stage.command("alice", f'/gpu break-glass {request_id} for="it is due today"')
        assert (await stage.w.view(request_id)).request.state is RequestState.PENDING
        assert await comes_back(stage) == 1
        assert (await stage.w.view(request_id)).request.state is RequestState.PENDING
        assert await counted(stage, "request.break_glass") == 1
        assert stage.w.alive() == []


async def test_what_was_said_since_about_keys_and_delegates_stands(stage: Stage) -> None:
    first, second = (public(ed25519.Ed25519PrivateKey.generate()) for _ in range(2))
    today = stage.w.clock.now().date()

    async def mine() -> str:
        await stage.command("alice", "/gpu key list")
        return stage.ws.ephemerals("alice")[-1].text

    async with dying(stage):
        await stage.command("alice", f"/gpu key add {first}")
        await stage.command("bob", f"/gpu delegate U0DAVE until {today}")
    before = await mine()
    await stage.command("alice", f"/gpu key add {second}")
    await stage.command("bob", "/gpu delegate off")
    now = await mine()
    assert now != before
    assert await comes_back(stage) == 2
    assert await mine() == now
    assert await delegation.delegators(stage.ctx, DAVE) == []
    assert await counted(stage, "delegation.made") == 1
    async with dying(stage):
        await stage.command("alice", "/gpu key remove")
        await stage.command("bob", f"/gpu delegate U0DAVE until {today}")
        await stage.command("bob", "/gpu delegate off")
    await stage.command("alice", f"/gpu key add {second}")
    await stage.command("bob", f"/gpu delegate U0DAVE until {today}")
    assert await comes_back(stage) == 3
    assert await mine() == now
    assert len(await delegation.delegators(stage.ctx, DAVE)) == 1
