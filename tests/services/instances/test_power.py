"""Stop, start and restart: done when the cloud shows it, and a stopped machine still ends in time."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest

from bot.rules.instances.power import PowerAction
from bot.rules.sessions.running_time import seconds_run
from bot.services.instances import power, reconcile
from bot.services.runtime.commands import FinishSession, Reply, Switch
from bot.services.sessions import service
from ledger.core.moves import move
from ledger.core.writes import amend
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import GrantState, InstanceState, SessionState
from ledger.models import Instance, Session
from providers.contract import Listing, Provider
from providers.errors import NoCapacity, Unavailable
from providers.profiles import model
from tests.support.proxy_provider import InFront
from tests.support.world import ALICE, DAVE, World, facts


async def order(w: World, request_id: str, what: PowerAction, actor: Actor = ALICE, key: str = "") -> Reply:
    return await power.switch(w.ctx, Switch(request_id, facts(actor), what, key=key))


async def now(w: World) -> tuple[Session, Instance]:
    books = await w.books()
    return books.sessions[0], books.instances[0]


async def events(w: World, subject: str, kind: EventKind) -> list[str]:
    """The reasons of the events of one kind about one subject."""
    return [one.reason for one in (await w.books()).events if (one.subject, one.kind) == (subject, kind)]


def stoppable(w: World) -> str:
    """A cloud where a stop saves money."""
    able = {name: one.capabilities for name, one in w.ctx.providers.items()}
    return next(name for name, can in able.items() if can.stop and not can.billing.gpu_while_stopped)


async def stopped(w: World) -> str:
    request_id = await w.running(candidates=(stoppable(w),))
    assert (await order(w, request_id, PowerAction.STOP)).code == "power_action"
    await w.run(60, 20)
    session, instance = await now(w)
    assert (session.state, instance.state) == (SessionState.STOPPED, InstanceState.STOPPED)
    return request_id


async def test_a_stop_is_done_when_the_cloud_shows_it_and_stops_the_meter_of_the_gpu(w: World) -> None:
    request_id = await stopped(w)
    session, instance = await now(w)
    assert (instance.wanted, instance.due_at) == (None, None)
    before = w.bill()
    w.clock.advance(1800)
    rate = (w.bill() - before) * 2
    assert rate <= instance.storage_usd_h + Decimal("0.001")
    assert session.deadline is not None
    assert (await order(w, request_id, PowerAction.STOP)).code == "wrong_state"


async def test_3300_a_start_takes_a_grant_that_adds_nothing_and_is_ready_when_it_is_reached(w: World) -> None:
    request_id = await stopped(w)
    deadline = (await now(w))[0].deadline
    first = await order(w, request_id, PowerAction.START, key="rest:1")
    assert first.code == "power_action"
    assert (await order(w, request_id, PowerAction.START)).code == "under_way"
    await w.run(120, 20)
    # The process ended before it answered: the same call is answered, and what its owner stopped since stays stopped.
    assert (await order(w, request_id, PowerAction.START, key="rest:1")) == first
    session, instance = await now(w)
    assert (session.state, instance.state, session.deadline) == (SessionState.RUNNING, InstanceState.LIVE, deadline)
    assert instance.reachable_at is not None
    books = await w.books()
    assert [(g.kind, g.state, g.total_cap_usd) for g in books.grants if g.kind == "start"] == [
        ("start", GrantState.USED, Decimal(0))
    ]
    # The first message is edited at the stop and at the start, which notifies nobody, so a second one says that it is
    # ready again.
    assert w.board.kinds(session.id).count("session.ready") == 4
    moved = await events(w, instance.id, EventKind.INSTANCE_ADDRESS_CHANGED)
    assert [ports.split(":")[-1].rstrip(".") for ports in moved] == [str(instance.ssh_port)]
    (again,) = [one for one in books.notifications if one.kind == "session.ready" and "/" in one.subject]
    assert (again.body, again.destination) == ({"changed": True}, ALICE.id)
    assert (await order(w, request_id, PowerAction.STOP)).code == "power_action"
    await w.run(60, 20)
    assert (await order(w, request_id, PowerAction.START, key="rest:1")) == first
    session, instance = await now(w)
    assert (session.state, instance.wanted) == (SessionState.STOPPED, None)
    assert len(w.instances()) == 1  # Nothing was created for it.


async def test_how_long_a_session_ran_counts_each_run_and_no_stop(w: World) -> None:
    request_id = await w.running(candidates=(stoppable(w),))
    began = w.clock.now()
    await w.run(1200, 300)
    await order(w, request_id, PowerAction.STOP)
    await w.run(60, 20)
    ran_s = (await now(w))[0].ran_s
    assert ran_s is not None
    assert 1200 <= ran_s <= (w.clock.now() - began).total_seconds()
    await w.run(3600, 600)
    await order(w, request_id, PowerAction.START)
    await w.run(120, 20)
    assert ((await now(w))[0].state, (await now(w))[0].ran_s) == (SessionState.RUNNING, ran_s)
    await w.run(600, 300)
    await w.end(request_id)
    await w.run(120, 30)
    session, _ = await now(w)
    assert session.ended_at is not None
    whole_s = seconds_run(session, session.ended_at)
    assert whole_s is not None
    assert ran_s + 600 <= whole_s < ran_s + 900  # Before: from its last start to its end, or with its stops.


async def test_a_stopped_session_ends_at_its_approved_end_like_every_other(w: World) -> None:
    await stopped(w)
    session, _ = await now(w)
    assert session.deadline is not None
    await w.run((session.deadline - w.clock.now()).total_seconds() + 5, 600)
    assert "session.ending" in w.board.kinds(session.id)
    await w.run(120, 30)
    session, _ = await now(w)
    assert (session.state, session.end_code, w.alive()) == (SessionState.TERMINATED, "reservation_over", [])


async def test_a_gpu_that_is_taken_leaves_the_disk_and_tells_the_owner(w: World) -> None:
    request_id = await stopped(w)
    cloud = (await now(w))[1].cloud

    class Taken(InFront):
        async def start(self, ref: str) -> None:
            raise NoCapacity(cloud, "the GPU is rented to somebody else")

    w.wrap(cloud, lambda inner: cast("Provider", Taken(inner)))
    assert (await order(w, request_id, PowerAction.START)).ok
    await w.settle()
    session, instance = await now(w)
    assert (session.state, instance.state, instance.wanted) == (SessionState.STOPPED, InstanceState.STOPPED, None)
    assert "reply" in w.board.kinds(instance.id)
    assert [g.state for g in (await w.books()).grants if g.kind == "start"] == [GrantState.VOID]
    assert (await order(w, request_id, PowerAction.START)).code == "power_action"  # It can be tried again.


async def test_a_cloud_that_does_not_answer_is_asked_again_and_operators_are_told_once(w: World) -> None:
    request_id = await w.running(candidates=(stoppable(w),))
    cloud = (await now(w))[1].cloud
    asked = []

    class Deaf(InFront):
        async def stop(self, ref: str) -> None:
            asked.append(ref)
            raise Unavailable(cloud, "it does not answer")

    provider = w.ctx.providers[cloud]
    w.wrap(cloud, lambda inner: cast("Provider", Deaf(inner)))
    await order(w, request_id, PowerAction.STOP)
    await w.run(w.ctx.timing.terminate_page_s + 180, 60)
    assert len(asked) > 5
    assert len({entry[1] for entry in w.board.shown if entry[0] == "operator.page"}) == 1
    assert (await now(w))[0].state is SessionState.RUNNING
    w.use({**w.ctx.providers, cloud: provider})
    await w.run(120, 30)
    assert (await now(w))[0].state is SessionState.STOPPED


async def test_a_machine_that_was_started_elsewhere_is_booked_as_running_again(w: World) -> None:
    await stopped(w)
    _, instance = await now(w)
    assert instance.ref is not None
    await w.ctx.providers[instance.cloud].start(instance.ref)
    await w.run(120, 20)
    session, instance = await now(w)
    assert (session.state, instance.state, instance.billing_until) == (SessionState.RUNNING, InstanceState.LIVE, None)


async def test_a_restart_is_one_call_and_ends_nothing(w: World) -> None:
    request_id = await w.running(candidates=(stoppable(w),))
    assert (await order(w, request_id, PowerAction.RESTART)).code == "power_action"
    await w.run(60, 20)
    session, instance = await now(w)
    assert (session.state, instance.wanted) == (SessionState.RUNNING, None)


async def test_who_may_not_and_what_cannot(w: World) -> None:
    request_id = await w.running(candidates=(stoppable(w),))
    assert (await order(w, request_id, PowerAction.STOP, DAVE)).code == "not_yours"
    assert (await order(w, "zzzzzz", PowerAction.STOP)).code == "unknown_id"
    waiting = str((await w.ask()).data["request_id"])
    assert (await order(w, waiting, PowerAction.STOP)).code == "no_session"
    cloud, providers = (await now(w))[1].cloud, w.ctx.providers
    assert (await order(w, request_id, PowerAction.STOP)).code == "power_action"
    w.use({name: one for name, one in providers.items() if name != cloud})
    await w.settle()
    assert (await now(w))[1].wanted is None  # Nobody can ask; the owner was told.
    assert (await order(w, request_id, PowerAction.STOP)).code == "cloud_gone"
    w.use(providers)


@pytest.mark.parametrize("preserve", [True, False])
async def test_done_keeps_the_disk_until_the_end_or_destroys_it(w: World, preserve: bool) -> None:
    request_id = await w.running(candidates=(stoppable(w),))
    reply = await service.done(w.ctx, FinishSession(request_id, facts(ALICE), preserve=preserve))
    assert reply.code == ("preserving" if preserve else "terminating")
    await w.run(120, 30)
    assert (await now(w))[0].state is (SessionState.STOPPED if preserve else SessionState.TERMINATED)


async def test_a_disk_that_cannot_be_kept_ends_nothing(w: World) -> None:
    cannot = next(name for name, one in w.ctx.providers.items() if one.capabilities.ssh and not one.capabilities.stop)
    request_id = await w.running(candidates=(cannot,))
    reply = await service.done(w.ctx, FinishSession(request_id, facts(ALICE), preserve=True))
    assert (reply.code, "To end it with its disk" in reply.sentence) == ("cannot_stop", True)
    assert (await now(w))[0].state is SessionState.RUNNING


async def test_the_answers_say_what_the_profile_says_of_the_data(w: World) -> None:
    request_id = await w.running(candidates=("runpod",))
    assert "A restart wipes /." in (await order(w, request_id, PowerAction.RESTART)).sentence
    await w.settle()
    assert "A stop keeps /workspace and wipes /." in (await order(w, request_id, PowerAction.STOP)).sentence
    ended = await w.end(request_id)
    assert ended.sentence.endswith("Everything in / and /workspace will be deleted.")


async def test_a_disk_is_not_kept_where_a_stop_keeps_nothing(
    w: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = await w.running(candidates=("vast",))
    text = (model.FOLDER / "vast.md").read_text(encoding="utf-8")
    assert "| yes (billed on, host-local) |" in text
    (tmp_path / "vast.md").write_text(text.replace("| yes (billed on, host-local) |", "| no |"))
    monkeypatch.setattr(model, "FOLDER", tmp_path)
    reply = await service.done(w.ctx, FinishSession(request_id, facts(ALICE), preserve=True))
    assert (reply.code, "deletes everything on the machine" in reply.sentence) == ("stop_keeps_nothing", True)
    assert (await now(w))[0].state is SessionState.RUNNING


async def test_an_order_that_is_due_for_nothing_is_given_back(w: World) -> None:
    await w.running()
    _, instance = await now(w)
    async with w.ctx.db.write() as tx:
        await amend(tx, Instance, instance.id, due_at=w.clock.now() - timedelta(seconds=1))
    assert await power.switch_due(w.ctx) == 1
    assert (await now(w))[1].due_at is None


class Late(InFront):
    """A look whose answer comes after others have been taken over."""

    held: Listing | None = None

    async def list(self) -> Listing:
        found, self.held = self.held, None
        return found or await self.inner.list()


@pytest.mark.both_databases
async def test_a_look_that_answers_late_starts_nothing_and_a_stop_replaces_a_start(w: World) -> None:
    cloud = stoppable(w)
    w.wrap(cloud, lambda inner: cast("Provider", Late(inner)))
    late = cast("Late", w.ctx.providers[cloud])
    request_id = await w.running(candidates=(cloud,))
    await order(w, request_id, PowerAction.STOP)
    before = await late.inner.list()
    await w.run(60, 20)
    late.held = before
    await reconcile.observe(w.ctx, cloud)
    session, instance = await now(w)
    assert (session.state, instance.state, instance.status) == (SessionState.STOPPED, InstanceState.STOPPED, "stopped")
    assert (await order(w, request_id, PowerAction.START)).code == "power_action"
    late.held = before
    await reconcile.observe(w.ctx, cloud)
    assert (await now(w))[1].state is InstanceState.STOPPED
    assert (await order(w, request_id, PowerAction.STOP)).code == "power_action"
    assert [g.state for g in (await w.books()).grants if g.kind == "start"] == [GrantState.VOID]
    await w.run(20, 20)
    session, instance = await now(w)
    assert (session.state, instance.state, instance.wanted) == (SessionState.STOPPED, InstanceState.STOPPED, None)


async def test_a_stop_that_follows_a_start_which_the_cloud_took_stops_it_again(w: World) -> None:
    request_id = await stopped(w)
    await order(w, request_id, PowerAction.START)
    await power.switch_due(w.ctx)
    assert (await order(w, request_id, PowerAction.STOP)).code == "power_action"
    w.clock.advance(5)
    await reconcile.observe(w.ctx, (await now(w))[1].cloud)
    session, instance = await now(w)
    assert (session.state, instance.state, instance.wanted) == (SessionState.STOPPED, InstanceState.LIVE, "stop")
    await w.run(120, 20)
    session, instance = await now(w)
    assert (session.state, instance.state, instance.wanted) == (SessionState.STOPPED, InstanceState.STOPPED, None)


@pytest.mark.slow
async def test_a_stop_waits_for_the_start_that_is_still_under_way(w: World) -> None:
    request_id = await stopped(w)
    await order(w, request_id, PowerAction.START)
    await power.switch_due(w.ctx)
    row = (await now(w))[1]
    claimed_until = w.clock.now() + timedelta(seconds=60)
    async with w.ctx.db.write() as tx:  # As while the start is repeated, because its first answer was lost.
        await amend(tx, Instance, row.id, claim_token="start", claim_until=claimed_until)
    assert (await order(w, request_id, PowerAction.STOP)).code == "power_action"
    w.clock.advance(5)
    await reconcile.observe(w.ctx, row.cloud)
    row = (await now(w))[1]
    assert (row.state, row.wanted, row.claim_token) == (InstanceState.LIVE, "stop", "start")
    assert await power.switch_due(w.ctx) == 0
    w.clock.advance(60)
    assert await power.switch_due(w.ctx) == 1
    await w.run(120, 20)
    assert (await now(w))[1].state is InstanceState.STOPPED


async def test_what_runs_again_without_having_been_seen_to_start_can_be_stopped(w: World) -> None:
    """Rows as a service of before this check has left them: the session stopped, the instance live, a start wanted."""
    request_id = await stopped(w)
    async with w.ctx.db.write() as tx:
        row = (await now(w))[1]
        await move(tx, Instance, row.id, InstanceState.LIVE, at=w.clock.now(), actor=SYSTEM)
        await amend(tx, Instance, row.id, reachable_at=None)
    assert (await order(w, request_id, PowerAction.START)).code == "power_action"
    await w.run(120, 20)
    session, instance = await now(w)
    assert (session.state, instance.state, instance.wanted) == (SessionState.RUNNING, InstanceState.LIVE, None)
    assert [g.state for g in (await w.books()).grants if g.kind == "start"] == [GrantState.USED]
    assert (await order(w, request_id, PowerAction.STOP)).code == "power_action"
