"""A ledger restored from a copy buys nothing twice and ends nothing early, until operators accept it."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.services.instances.adoption import Adopt, adopt_orphan
from bot.services.runtime import ends_copy
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from tests.services.recovery.restoring import ADA, Copies, Service, lose_records, restarted
from tests.support.world import ALICE, BOB, CHANNEL, World, facts

HOUR_S = 3600.0


async def extended(running: Service, request_id: str, hours: str) -> datetime:
    """Somebody extends a session, and an approver approves that; returns the end."""
    w = running.w
    assert (await w.more(request_id, hours)).code == "extension_requested"
    await running.run(15)
    asked = next(one for one in (await w.books()).requests if one.parent_id == request_id)
    assert (await w.decide(asked.id)).code == "approved"
    await running.run(15)
    return await end_of(w, request_id)


async def end_of(w: World, request_id: str) -> datetime:
    """When a session ends."""
    session = (await w.view(request_id)).session
    assert session is not None
    assert session.deadline is not None
    return session.deadline


async def states(w: World, request_id: str) -> tuple[RequestState, SessionState | None]:
    view = await w.view(request_id)
    return view.request.state, view.session.state if view.session else None


async def test_what_people_had_ended_since_the_copy_is_not_bought_again(running: Service, copies: Copies) -> None:
    w = running.w
    request_id = await w.approved(candidates=("runpod",))
    copy = await copies.take(*running.databases)
    await running.run(45)
    assert (len(w.engine.creates), len(w.alive())) == (1, 1)
    assert (await w.end(request_id)).ok
    await running.run(180, 30)
    assert w.alive() == []
    async with restarted(running, copy) as later:
        await later.run(120, 30)
        assert (len(w.engine.creates), w.alive(), later.pages) == (1, [], ["ledger/older"])
        first, *_ = await later.differences()
        assert "events older than its epoch of 09:0" in first
        reply = await later.accept()
        assert reply.sentence.startswith("The ledger is accepted, and GPU Shopper buys again. 1 approved launch was")
        assert await later.differences() == []
        await later.run(45)
        assert await states(later.w, request_id) == (RequestState.UNAVAILABLE, SessionState.FAILED)
        books = await later.w.books()
        texts = [str(one.body.get("text")) for one in books.notifications if one.destination == ALICE.id]
        assert [text for text in texts if "request it again" in text]
        (event,) = [one for one in books.events if one.kind == EventKind.LEDGER_ACCEPTED]
        assert (event.actor, len(w.engine.creates)) == (ADA.ref, 1)
        again = await later.w.approved(candidates=("runpod",))
        await later.run(45)
        assert [one.state for one in (await later.w.view(again)).instances] == [InstanceState.LIVE]
        assert (await later.accept()).code == "not_older"
        assert await later.violations() == []


async def test_an_extended_machine_lives_until_the_end_that_the_copy_of_ends_has(
    running: Service, copies: Copies
) -> None:
    w = running.w
    request_id = await w.running(candidates=("runpod",), hours=Decimal(1))
    copy = await copies.take(*running.databases)
    until = await extended(running, request_id, "2")
    w.clock.advance(HOUR_S + 1200)
    async with restarted(running, copy) as later:
        await later.run(60, 20)
        assert len(w.alive()) == 1
        (row,) = ends_copy.load(later.folder / ends_copy.NAME).rows
        assert (row.deadline, await end_of(later.w, request_id)) == (until, until)
        assert [text for text in await later.differences() if "; the ledger had " in text]
        assert (await later.accept()).ok
        await later.run((until - w.clock.now() - timedelta(seconds=30)).total_seconds(), 600)
        assert len(w.alive()) == 1
        await later.run(240, 20)
        assert w.alive() == []
        session = (await later.w.view(request_id)).session
        assert session is not None
        assert (session.state, session.end_code) == (SessionState.TERMINATED, EndReason.RESERVATION_OVER)
        assert await later.violations() == []


@pytest.mark.slow
async def test_without_any_record_operators_are_paged_twice_before_anything_ends(
    running: Service, copies: Copies
) -> None:
    w = running.w
    await w.running(candidates=("runpod",), hours=Decimal(1))
    copy = await copies.take(*running.databases)
    w.clock.advance(HOUR_S)
    lose_records(running.folder)
    async with restarted(running, copy) as later:
        await later.run(1500, 60)
        assert (len(w.alive()), later.pages) == (1, ["ledger/older"])
        while w.alive():
            shown = list(later.pages)
            await later.run(15)
        assert shown == ["ledger/older", "ledger/older/1"]
        assert (await later.differences())[0].startswith("Nothing shows how old the ledger is")


async def test_a_ledger_that_is_not_older_goes_on_and_a_shortened_end_stays_short(running: Service) -> None:
    w = running.w
    request_id = await w.running(candidates=("runpod",), hours=Decimal(2))
    await running.run(15)
    until = await end_of(w, request_id)
    session = (await w.view(request_id)).session
    assert session is not None
    await w.shorten(session.id, timedelta(hours=1))
    url = w.ctx.db.url.render_as_string(hide_password=False)
    async with restarted(running, url) as later:
        await later.run(30)
        assert (later.pages, await later.differences()) == ([], [])
        assert await end_of(later.w, request_id) == until - timedelta(hours=1)
        (row,) = ends_copy.load(later.folder / ends_copy.NAME).rows
        assert row.deadline == until - timedelta(hours=1)


@pytest.mark.parametrize("is_extended", [True, False])
async def test_an_end_that_is_shortened_beside_an_older_ledger_stays_short(
    running: Service, copies: Copies, is_extended: bool
) -> None:
    w = running.w
    request_id = await w.running(candidates=("runpod",), hours=Decimal(4))
    copy = await copies.take(*running.databases)
    until = await end_of(w, request_id)
    if is_extended:
        until = await extended(running, request_id, "2")
    else:
        assert (await w.more(request_id, "2")).code == "extension_requested"
    await running.run(15)
    async with restarted(running, copy) as later:
        await later.run(60, 20)
        assert (later.pages, await end_of(later.w, request_id)) == (["ledger/older"], until)
        session = (await later.w.view(request_id)).session
        assert session is not None
        await later.w.shorten(session.id, timedelta(hours=1))
        await later.run(60, 20)
        url = later.w.ctx.db.url.render_as_string(hide_password=False)
        async with restarted(later, url) as last:
            await last.run(60, 20)
            assert await end_of(last.w, request_id) == until - timedelta(hours=1)
            (row,) = ends_copy.load(last.folder / ends_copy.NAME).rows
            assert row.deadline == until - timedelta(hours=1)
            ends = [one for one in (await last.w.books()).events if one.kind == EventKind.SESSION_END_RECORDED]
            assert len(ends) == is_extended


@pytest.mark.slow
async def test_a_machine_that_the_ledger_lacks_is_listed_and_left_alone(running: Service, copies: Copies) -> None:
    w = running.w
    await w.running(candidates=("vast",))
    copy = await copies.take(*running.databases)
    await w.running(candidates=("runpod",), hours=Decimal(1))
    await running.run(15)
    async with restarted(running, copy) as later:
        await later.run(HOUR_S + 600, 60)
        assert len(w.alive()) == 2
        assert [text for text in await later.differences() if text.startswith("The ledger lacks RunPod instance ")]
        assert [one.state for one in (await later.w.books()).orphans] == [OrphanState.QUARANTINED]


@pytest.mark.slow
async def test_a_replacement_of_the_lost_part_is_not_bought_a_second_time(running: Service, copies: Copies) -> None:
    w = running.w
    w.tune(price_tolerance=Decimal(3), grace_usd=Decimal(0))
    request_id = await w.running(candidates=("vast",), spot=SpotPolicy.YES)
    copy = await copies.take(*running.databases)
    (first,) = w.instances()
    w.clouds["vast"].disturb(first.ref, "outbid_a")
    await running.run(900, 30)
    assert [row.state for row in (await w.view(request_id)).instances] == [InstanceState.GONE, InstanceState.LIVE]
    creates = len(w.engine.creates)
    async with restarted(running, copy) as later:
        await later.run(60, 20)
        assert (await later.accept()).ok
        (orphan,) = (await later.w.books()).orphans
        assert orphan.state is OrphanState.QUARANTINED
        adopted = Adopt(orphan.id, Decimal(1), facts(BOB), ALICE, "it trains", CHANNEL)
        assert (await adopt_orphan(later.w.ctx, adopted)).code == "adopted"
        await later.run(600, 30)
        assert len(w.engine.creates) == creates
        assert (await states(later.w, request_id))[1] is not SessionState.RUNNING


@pytest.mark.slow
async def test_an_auto_approval_of_the_lost_part_is_not_given_again(running: Service, copies: Copies) -> None:
    w = running.w
    until = (w.clock.now() + timedelta(days=1)).date()
    w.tune(auto_approve_below_usd=Decimal(5), auto_approve_signed_by="operator:ada", auto_approve_until=until)
    reply = await w.ask(candidates=("vast",))
    request_id = str(reply.data["request_id"])
    copy = await copies.take(*running.databases)
    await running.run(60)
    assert len(w.alive()) == 1
    assert (await w.end(request_id)).ok
    await running.run(180, 30)
    async with restarted(running, copy) as later:
        await later.run(60)
        assert (await later.accept()).ok
        await later.run(120)
        assert (await states(later.w, request_id), len(w.engine.creates)) == ((RequestState.PENDING, None), 1)


async def test_earlier_approvals_are_kept_where_an_operator_says_so(running: Service, copies: Copies) -> None:
    w = running.w
    request_id = await w.approved(candidates=("runpod",))
    copy = await copies.take(*running.databases)
    await w.ask(candidates=("vast",))
    await running.dog.look()
    async with restarted(running, copy) as later:
        await later.run(30)
        assert w.engine.creates == []
        assert (await later.accept(keeps_approvals=True)).ok
        await later.run(45)
        assert (len(w.engine.creates), (await states(later.w, request_id))[0]) == (1, RequestState.APPROVED)
