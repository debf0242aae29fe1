"""Ends by the machine's own word: announced with their grace, done or dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.services.instances import reconcile
from bot.services.runtime.commands import FinishSession, KeepRunning, Terminate
from bot.services.sessions import idle_termination, service
from bot.wire import variables
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Node, Notification, Session
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.agents import agent, listening, pass_time
from tests.support.clock import SteppedClock
from tests.support.matrix import on_clouds
from tests.support.world import ALICE, BOB, DAVE, World, checked_world, facts

KIND = "session.idle"


@pytest.fixture
async def one(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service on SQLite only, for what the database has no part in."""
    async with checked_world(sqlite_db, clock) as built:
        yield built


async def session(w: World) -> Session:
    return (await w.books()).sessions[0]


async def told(w: World) -> list[Notification]:
    return [note for note in (await w.books()).notifications if note.kind == KIND]


def unreachable(w: World) -> None:
    """No SSH server answers any more."""
    vast = w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    for contract in vast.account.instances.values():
        contract.reachable_s = 1e9


def reachable(w: World) -> None:
    """They answer again, and so do the agents."""
    vast = w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    for contract in vast.account.instances.values():
        contract.reachable_s = 0.5


async def started(w: World, hours: str = "2") -> str:
    """A session whose agent has reported."""
    request_id = await w.running(candidates=("vast",), hours=Decimal(hours))
    await pass_time(w, 1)
    assert agent(w).status == 200
    return request_id


async def test_silence_is_told_then_ends_it_with_slack_down_and_booked(w: World) -> None:
    w.tune(grace_usd=Decimal(0))
    async with listening(w):
        await started(w)
        agent(w).silent = True
        unreachable(w)
        w.board.down = True
        await pass_time(w, 14 * 60)
        assert (await session(w)).early_end_at is None
        await pass_time(w, 100)
        row = await session(w)
        assert (row.state, row.early_end_code) == (SessionState.RUNNING, "no_heartbeat")
        assert row.early_end_at is not None
        assert [(note.destination, note.tries >= 1) for note in await told(w)] == [(ALICE.id, True)]
        left_s = (row.early_end_at - w.clock.now()).total_seconds()
        assert left_s == 300
        await pass_time(w, left_s - 1)
        assert (await session(w)).state is SessionState.RUNNING
        await pass_time(w, 1)
        row = await session(w)
        assert (row.state, row.end_code) == (SessionState.TERMINATING, "no_heartbeat")
        assert "last reported at" in row.end_reason
        await w.run(90, 30)
        assert ((await session(w)).state, w.alive()) == (SessionState.TERMINATED, [])
        assert sum(entry.amount_usd for entry in (await w.books()).entries if entry.kind == "accrue") > 0


@pytest.mark.slow
async def test_silence_ends_nothing_while_the_ssh_port_answers(one: World) -> None:
    w = one
    async with listening(w):
        await started(w, "12")
        agent(w).silent = True
        await pass_time(w, 4 * 3600)
        row = await session(w)
        assert (row.state, row.early_end_code, await told(w)) == (SessionState.RUNNING, None, [])
        assert (await w.books()).graces == ()


async def test_a_silent_machine_is_kept_while_the_rest_of_its_time_is_cheap(one: World) -> None:
    w = one
    async with listening(w):
        await started(w, "2")  # At $0.35 an hour the whole of it costs less than a dollar.
        agent(w).silent = True
        unreachable(w)
        await pass_time(w, 3600)
        (grace,) = (await w.books()).graces
        assert (grace.code, grace.cause, grace.at_risk, grace.ended_at) == ("no_heartbeat", "host", "disk", None)
        assert ((await session(w)).state, (await session(w)).early_end_code) == (SessionState.RUNNING, None)
        reachable(w)
        await pass_time(w, 120)
        (grace,) = (await w.books()).graces
        assert grace.outcome == "recovered"
        assert 0 < grace.spent_usd < grace.limit_usd


@pytest.mark.slow
async def test_idling_ends_training_after_half_an_hour_and_keep_gives_it_one_more(w: World) -> None:
    async with listening(w):
        request_id = await started(w, "4")
        agent(w).utilisation = [1.0]
        agent(w).machine = {"cpu_percent": 3, "logins": 0}
        await pass_time(w, 1900)
        row = await session(w)
        assert row.early_end_code == "idle"
        assert " Last report: GPU 1%, CPU 3%, no open login." in (row.early_end_reason or "")
        assert row.early_end_at is not None
        mark = int(row.early_end_at.timestamp())
        assert (
            await idle_termination.keep_running(w.ctx, KeepRunning(request_id, facts(DAVE), mark))
        ).code == "not_yours"
        assert (
            await idle_termination.keep_running(w.ctx, KeepRunning(request_id, facts(ALICE), mark + 1))
        ).code == "stale"
        assert (
            await idle_termination.keep_running(w.ctx, KeepRunning("nobody", facts(ALICE), mark))
        ).code == "unknown_id"
        assert (
            await idle_termination.keep_running(w.ctx, KeepRunning(request_id, facts(BOB), mark))
        ).code == "kept_running"
        assert (await idle_termination.keep_running(w.ctx, KeepRunning(request_id, facts(ALICE), mark))).code == "stale"
        await pass_time(w, 3500)
        row = await session(w)
        assert (row.state, row.early_end_at) == (SessionState.RUNNING, None)
        await pass_time(w, 200)
        assert (await session(w)).early_end_code == "idle"
        await pass_time(w, 700)
        assert (await session(w)).end_code == "idle"
        waits = str((await w.ask(BOB)).data["request_id"])
        assert (await idle_termination.keep_running(w.ctx, KeepRunning(waits, facts(BOB)))).code == "no_session"


async def test_a_notebook_is_kept_by_an_open_login_until_half_an_hour_after_it_closed(w: World) -> None:
    async with listening(w):
        await w.running(candidates=("vast",), hours=Decimal(4), workload="notebook")
        await pass_time(w, 1)
        agent(w).utilisation = [0.0]
        agent(w).machine = {"cpu_percent": 1, "logins": 1}
        await pass_time(w, 3600)
        assert (await session(w)).early_end_at is None
        agent(w).machine = {"cpu_percent": 1, "logins": 0}
        await pass_time(w, 1700)
        assert (await session(w)).early_end_at is None
        await pass_time(w, 200)
        reason = (await session(w)).early_end_reason or ""
        assert reason.startswith("Its GPUs have been below 5% and its CPUs below 2%, with no open login, since ")
        agent(w).machine = {"cpu_percent": 90, "logins": 0}
        await pass_time(w, 100)
        assert (await session(w)).early_end_at is None


async def test_a_job_that_is_done_is_told_and_its_buttons_act_on_that_end_and_no_other(w: World) -> None:
    async with listening(w):
        request_id = await started(w)
        agent(w).job = "done"
        await pass_time(w, 90)
        row = await session(w)
        assert (row.early_end_code, len(await told(w))) == ("completed", 1)
        assert row.early_end_at is not None
        mark = int(row.early_end_at.timestamp())
        stale = await service.terminate(w.ctx, Terminate(request_id, facts(ALICE), seen_end_s=mark - 1))
        assert stale.code == "stale"
        assert (await service.done(w.ctx, FinishSession(request_id, facts(ALICE), seen_end_s=mark))).ok
        await w.settle()
        assert (await session(w)).end_code == "completed"
        assert [entry[3] for entry in w.board.shown if entry[0] == KIND] == [1, 2]


async def test_a_job_that_failed_is_ended_by_itself_unless_its_approved_end_is_nearer(one: World) -> None:
    w = one
    async with listening(w):
        await started(w)
        agent(w).job = "failed"
        row = await session(w)
        assert row.deadline is not None
        w.tune(done_grace_s=7200)
        await pass_time(w, 90)
        assert ((await session(w)).early_end_at, await told(w)) == (None, [])
        w.tune(done_grace_s=120)
        await pass_time(w, 220)
        assert (await session(w)).end_code == "work_failed"
        (event,) = [event for event in (await w.books()).events if event.kind == "session.cut"]
        assert event.subject == row.id


async def test_1551_silence_that_nobody_could_hear_ends_nobody(one: World, monkeypatch: pytest.MonkeyPatch) -> None:
    w = one
    w.tune(fallback_contacts=("UFALLBACK",), grace_usd=Decimal(0))
    async with listening(w):
        await started(w, "6")
        agent(w).silent = True
        unreachable(w)
        w.board.unreachable.add(ALICE.id)
        w.clock.advance(3000)  # The service was away.
        await idle_termination.idle_terminations_due(w.ctx)
        with monkeypatch.context() as patch:
            patch.setattr("bot.rules.nodes.checkins.DEAF_LEAST", 1)  # A fleet that is silent as a whole.
            await pass_time(w, 1000)
            assert (await session(w)).early_end_at is None
            pages = [entry for entry in w.board.shown if entry[:2] == ("operator.page", "nodes/deaf")]
            assert len(pages) == 1
        await pass_time(w, 30)
        assert (await session(w)).early_end_code == "no_heartbeat"
        await pass_time(w, 30)
        assert {note.destination for note in await told(w)} == {ALICE.id, "UFALLBACK"}
        reachable(w)
        await pass_time(w, 200)
        row = await session(w)
        assert (row.state, row.early_end_at) == (SessionState.RUNNING, None)
        assert [entry[3] for entry in w.board.shown if entry[::2] == (KIND, "UFALLBACK")] == [1, 2]


async def test_6787_a_machine_that_reports_is_not_absent_whatever_the_listing_says(one: World) -> None:
    w = one
    async with listening(w):
        await started(w)
        vast = w.clouds["vast"]
        assert isinstance(vast, VastSandbox)
        (contract,) = vast.account.instances.values()
        contract.listed_at = w.clock.now() + timedelta(hours=1)
        await w.engine.ssh_ports.close_all()
        for _ in range(8):
            w.clock.advance(30)
            await reconcile.observe(w.ctx, "vast")
        assert (await w.books()).instances[0].state is InstanceState.LIVE
        assert not [entry for entry in w.board.shown if entry[0] == "operator.page"]
        contract.listed_at = w.clock.now()


@on_clouds(ssh=True)
async def test_every_cloud_hands_the_token_to_the_machine_and_to_nobody_else(
    w: World, cloud: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with listening(w):
        await w.running(candidates=(cloud,))
        await pass_time(w, 1)
        node = agent(w)
        assert node.status == 200
        secret = node.env[variables.TOKEN].split("_", 2)[2]
        assert secret not in caplog.text
        (row,) = (await w.books()).instances
        async with w.ctx.db.read() as tx:
            stored = await tx.get_one(Node, row.id)
        assert secret not in repr(vars(stored))
