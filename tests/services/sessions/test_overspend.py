"""A session that will cost more than was approved: asked, confirmed, paused, and ended at its cap."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import cast

import pytest

from bot.rules.instances.power import PowerAction
from bot.rules.sessions import overspend
from bot.services.instances import power
from bot.services.runtime.commands import Switch
from bot.services.sessions import overspend as session_overspend
from ledger.core.writes import amend
from ledger.engine.db import Database
from ledger.kernel.states import RequestState, SessionState
from ledger.models import Approval, Option, Request, Session
from ledger.queries.audit import values_of
from ledger.queries.overspend import is_open, open_overspend_request, running, running_ids
from providers.contract import Listing, Provider
from providers.errors import Unsupported
from tests.support.agents import agent, listening, pass_time
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import InFront
from tests.support.world import ALICE, BOB, World, checked_world, facts


async def asked(w: World) -> list[Request]:
    return [one for one in (await w.books()).requests if one.kind == "overspend"]


async def session_state(w: World) -> SessionState:
    return (await w.books()).sessions[0].state


async def cheaper(w: World, share: str = "0.5") -> None:
    """What was approved is this share of what it was: as if its work took longer than anybody thought."""
    async with w.ctx.db.write() as tx:
        for row in (await w.books()).instances:
            option = await tx.get_one(Option, row.option_id)
            option.expected_usd = (option.expected_usd * Decimal(share)).quantize(Decimal("0.01"))


async def test_a_fleet_that_is_read_in_parts_is_looked_at_whole(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_overspend, "TOGETHER", 1)
    for cloud in ("vast", "runpod"):
        await w.approved(candidates=(cloud,))
    await w.run(40, 20)
    await cheaper(w)
    assert await session_overspend.overspend_due(w.ctx) == 2
    assert len({one.parent_id for one in await asked(w)}) == 2


async def test_a_price_that_rises_inside_the_cap_is_seen_asked_about_and_confirmed(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(4))
    assert await session_overspend.overspend_due(w.ctx) == 0
    await cheaper(w)
    assert await session_overspend.overspend_due(w.ctx) == 1
    assert await session_overspend.overspend_due(w.ctx) == 1
    (one,) = await asked(w)
    assert one.state is RequestState.PENDING
    assert "will cost about" in one.reason
    await w.settle()
    told = [entry for entry in w.board.shown if entry[1] == f"drift/{one.id}"]
    assert [entry[2] for entry in told] == [ALICE.id]
    assert [entry for entry in w.board.shown if entry[:2] == ("request.message", one.id)]
    assert (await w.decide(one.id, ALICE)).code == "requester"
    before = (await w.books()).grants
    assert (await w.decide(one.id, BOB)).code == "approved"
    assert len((await w.books()).grants) == len(before)  # It buys nothing.
    assert await session_overspend.overspend_due(w.ctx) == 0
    w.clock.advance(3600)
    await w.settle()
    assert await session_overspend.overspend_due(w.ctx) == 0  # The new figure is what counts now.
    async with w.ctx.db.read() as tx:
        assert await tx.get(Request, one.id) is not None
    assert await session_state(w) is SessionState.RUNNING


async def test_what_nobody_confirms_is_stopped_cannot_be_started_and_goes_on_when_it_is_approved(w: World) -> None:
    request_id = await w.running(candidates=("vast",), hours=Decimal(4))
    await cheaper(w)
    await session_overspend.overspend_due(w.ctx)
    w.board.down = True
    (one,) = await asked(w)
    # Who withdrew it could let it run on for ever, so nobody does.
    assert {(await w.cancel(one.id, who)).code for who in (ALICE, BOB)} == {"not_withdrawn"}
    assert "gpu-shopper shutdown" in (await w.cancel(one.id)).sentence
    w.clock.advance(899)
    await session_overspend.overspend_due(w.ctx)
    assert await session_state(w) is SessionState.RUNNING
    w.clock.advance(1)
    await session_overspend.overspend_due(w.ctx)
    await w.run(30, 15)
    assert await session_state(w) is SessionState.STOPPED
    start = await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.START))
    assert start.code == "overspend_unconfirmed"
    w.board.down = False
    assert (await w.decide(one.id, BOB)).code == "approved"
    await w.run(60, 15)
    assert await session_state(w) is SessionState.RUNNING
    # Confirmed while its pause is under way: it goes on all the same.
    await cheaper(w, "0.1")
    async with w.ctx.db.write() as tx:
        again = (await w.books()).options[-1]
        (await tx.get_one(Option, again.id)).expected_usd = again.expected_usd / 10
    await session_overspend.overspend_due(w.ctx)
    w.clock.advance(901)
    await session_overspend.overspend_due(w.ctx)
    assert (await w.decide((await asked(w))[-1].id, BOB)).code == "approved"
    assert (await w.books()).instances[0].wanted == "stop"
    await w.run(60, 15)
    books = await w.books()
    assert [one.kind for one in books.grants].count("start") == 2
    assert books.sessions[0].state is SessionState.RUNNING


class NeverStops(InFront):
    """The cloud refuses every stop."""

    async def stop(self, ref: str) -> None:
        raise Unsupported(self.inner.name, "this host cannot be stopped")


async def test_a_pause_that_its_cloud_refuses_is_told_once_and_not_ordered_again(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(4))
    w.wrap("vast", lambda inner: cast("Provider", NeverStops(inner)))
    await cheaper(w)
    await session_overspend.overspend_due(w.ctx)
    for seconds in (900, 60, 60):
        w.clock.advance(seconds)
        await session_overspend.overspend_due(w.ctx)
        await w.settle()
    books = await w.books()
    assert books.sessions[0].state is SessionState.RUNNING
    assert [one.kind for one in books.events].count("instance.stop") == 1
    of_instance = [entry for entry in w.board.shown if entry[1].startswith(f"{books.instances[0].id}/stop")]
    assert len(of_instance) == 1


@pytest.mark.parametrize(
    ("state", "by", "expected"),
    [
        (RequestState.APPROVED, BOB.ref, False),
        (RequestState.CANCELLED, "system:scheduler", False),
        (RequestState.CANCELLED, ALICE.ref, True),  # As an earlier release let its owner.
        (RequestState.CANCELLED, None, True),
        (RequestState.PENDING, None, True),
        (RequestState.REJECTED, BOB.ref, True),
        (RequestState.EXPIRED, None, True),
    ],
)
def test_only_an_approval_and_the_service_itself_close_the_question(
    state: RequestState, by: str | None, expected: bool
) -> None:
    assert is_open(state, by) is expected


async def test_a_refusal_is_an_answer_and_a_figure_that_falls_back_asks_nobody(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        await w.running(candidates=("vast",), hours=Decimal(4))
        await cheaper(w)
        await session_overspend.overspend_due(w.ctx)
        await cheaper(w, "2")
        await session_overspend.overspend_due(w.ctx)
        (first,) = await asked(w)
        assert first.state is RequestState.CANCELLED
        await cheaper(w)
        await session_overspend.overspend_due(w.ctx)
        second = (await asked(w))[-1]
        assert (await w.decide(second.id, BOB, "reject", reason="too dear")).code == "rejected"
        await session_overspend.overspend_due(w.ctx)
        await w.run(30, 15)
        assert await session_state(w) is SessionState.STOPPED
        row = (await w.books()).sessions[0]
        assert row.deadline is not None
        w.clock.advance(row.deadline - timedelta(seconds=1) - w.clock.now())
        await w.settle()
        w.clock.advance(10)
        await w.settle()
        await w.run(120, 30)
        assert [one.end_code for one in (await w.books()).sessions] == ["drift_unconfirmed"]
        # A new approval has a figure of its own: what was refused before it is nobody's question any more.
        first_vote = (await w.books()).approvals[0]
        async with w.ctx.db.write() as tx:
            assert await open_overspend_request(tx, first_vote.request_id) is not None
            again = {"id": "apr_again", "quote_version": 2, "at": w.clock.now()}
            tx.add(Approval(**{**values_of(first_vote), **again}))
            await tx.flush()
            assert await open_overspend_request(tx, first_vote.request_id) is None


async def test_where_a_stop_saves_nothing_its_agent_saves_and_it_ends_at_its_cap(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w, listening(w):
        await w.running(candidates=("tensordock",), hours=Decimal(4))
        agent(w).target_step = 10**9  # By its own word it needs all the time that there is.
        await pass_time(w, 200)
        await cheaper(w)
        await session_overspend.overspend_due(w.ctx)
        (one,) = await asked(w)
        assert "its agent saves a checkpoint" in one.reason
        await pass_time(w, 900)
        await session_overspend.overspend_due(w.ctx)
        await session_overspend.overspend_due(w.ctx)
        await pass_time(w, 90)
        assert agent(w).asks == ("save", "upload")
        assert agent(w).saved_at is not None
        assert await session_state(w) is SessionState.RUNNING
        assert len([e for e in (await w.books()).events if e.kind == "spend.saving"]) == 1
        assert (await w.decide(one.id, BOB)).code == "approved"
        await pass_time(w, 90)
        assert agent(w).asks == ()


async def test_extensions_and_machines_before_count_in_what_was_approved_and_spent(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        request_id = await w.running(candidates=("vast",))
        more = await w.more(request_id, "2")
        assert more.code == "extension_requested"
        await w.decide(str(more.data["request_id"]), BOB)
        async with w.ctx.db.read() as tx:
            (one,) = await running(tx, await running_ids(tx))
        course = session_overspend.spend_forecast_of(one, w.clock.now())
        assert course.approved_usd > one.terms.expected_usd
        assert course.until == one.deadline
        earlier = replace(one, elsewhere_usd=Decimal(3), terms=replace(one.terms, estimate={}))
        assert session_overspend.spend_forecast_of(earlier, w.clock.now()).spent_usd == course.spent_usd + 3
        assert await session_overspend.overspend_due(w.ctx) == 0


async def test_what_an_approver_shortened_is_measured_against_what_they_approved(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        reply = await w.ask(candidates=("vast",), hours=Decimal(8))
        request_id = str(reply.data["request_id"])
        await w.settle()
        assert (await w.decide(request_id, BOB, hours=Decimal(2))).code == "approved"
        await w.settle()
        await w.run(40, 20)
        async with w.ctx.db.read() as tx:
            (one,) = await running(tx, await running_ids(tx))
        course = session_overspend.spend_forecast_of(one, w.clock.now())
        share = course.approved_usd / one.terms.expected_usd
        assert Decimal("0.2") < share < Decimal("0.35")
        assert await session_overspend.overspend_due(w.ctx) == 0
        # A limit is what was approved, too.
        lower = replace(one.terms, total_cap_usd=Decimal("0.25"))
        assert session_overspend.spend_forecast_of(replace(one, terms=lower), w.clock.now()).approved_usd == Decimal(
            "0.25"
        )
        # Far below what was asked for, and above what was approved.
        dearer = session_overspend.spend_forecast_of(replace(one, elsewhere_usd=Decimal("0.50")), w.clock.now())
        assert overspend.is_over(dearer, w.ctx.policy.price_tolerance, w.clock.now())


async def test_only_machines_that_the_same_approval_paid_for_count_against_it(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        request_id = await w.running(candidates=("vast",))
        more = await w.more(request_id, "1")
        assert (await w.decide(str(more.data["request_id"]), BOB)).code == "approved"
        w.clock.advance(600)
        await w.settle()
        (first,) = (await w.books()).instances
        w.clouds["vast"].disturb(str(first.ref), "vanish")
        await w.run(160, 20)
        async with w.ctx.db.read() as tx:
            (one,) = await running(tx, await running_ids(tx))
        books = await w.books()
        assert one.elsewhere_usd > 0
        # What the lost one may have cost beyond what is booked of it is nobody's to spend.
        held_usd = books.instances[0].unsettled_usd
        assert held_usd
        assert one.cap_usd == sum(approval.total_cap_usd or 0 for approval in books.approvals) - held_usd
        assert len(one.questions) == 1
        async with w.ctx.db.write() as tx:
            await amend(tx, Session, first.session_id, replacements_left=0)
        w.clouds["vast"].disturb(str(books.instances[1].ref), "vanish")
        await w.run(160, 20)
        assert (await w.decide(request_id, BOB)).code == "approved"
        await w.settle()
        await w.run(40, 20)
        async with w.ctx.db.read() as tx:
            (one,) = await running(tx, await running_ids(tx))
        assert (one.elsewhere_usd, one.questions) == (Decimal(0), ())
        assert one.cap_usd == (await w.books()).approvals[-1].total_cap_usd


class Dearer(InFront):
    """The cloud bills so many times what it did."""

    factor = Decimal(1)

    async def list(self) -> Listing:
        found: Listing = await self.inner.list()
        items = tuple(replace(one, price_usd_h=(one.price_usd_h or 0) * self.factor) for one in found.items)
        return replace(found, items=items)


async def test_a_price_above_the_cap_replaces_the_question_about_its_cost(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.wrap("vast", lambda inner: cast("Provider", Dearer(inner)))
        await w.running(candidates=("vast",), hours=Decimal(4))
        cloud = cast("Dearer", w.ctx.providers["vast"])
        cloud.factor = Decimal("1.05")  # Inside the cap: seen, and asked about where the figure is too high.
        await w.tick()
        assert await session_state(w) is SessionState.RUNNING
        await cheaper(w)
        await session_overspend.overspend_due(w.ctx)
        (one,) = await asked(w)
        assert one.state is RequestState.PENDING
        cloud.factor = Decimal("1.2")  # Above it: no answer to that question could cover the price.
        await w.tick()
        await session_overspend.overspend_due(w.ctx)
        first, second = await asked(w)
        assert (first.state, second.state) == (RequestState.CANCELLED, RequestState.PENDING)
        assert "above the approved" in second.reason
        before = len((await w.books()).grants)
        assert (await w.decide(second.id, BOB)).code == "approved"  # A rate is covered, and nothing is bought by that.
        assert len((await w.books()).grants) == before
        await session_overspend.overspend_due(w.ctx)
        assert ([one.state for one in await asked(w)][-1], len(w.alive())) == (RequestState.APPROVED, 1)
        assert await session_state(w) is SessionState.RUNNING
