"""A ledger restored from a copy buys nothing twice and ends nothing early, until operators accept it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from bot.services.runtime import ends_copy
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, RequestState, SessionState
from tests.services.recovery.restoring import ADA, Copies, Service, lose_records, restarted
from tests.support.world import ALICE

HOUR_S = 3600.0


async def test_what_people_had_ended_since_the_copy_is_not_bought_again(running: Service, copies: Copies) -> None:
    w = running.w
    request_id = await w.approved(candidates=("runpod",))
    copy = await copies.take(*running.databases)
    await running.run(60)
    assert (len(w.engine.creates), len(w.alive())) == (1, 1)
    assert (await w.end(request_id)).ok
    await running.run(300)
    assert w.alive() == []
    async with restarted(running, copy) as later:
        await later.run(300)
        assert (len(w.engine.creates), w.alive()) == (1, [])
        assert later.pages == ["ledger/older"]
        first, *_ = await later.said()
        assert first.startswith("The ledger is ")
        assert "events older than its epoch of 09:0" in first
        reply = await later.accept()
        assert reply.sentence.startswith("The ledger is accepted, and GPU Shopper buys again. 1 approved launch was")
        assert await later.said() == []
        await later.run(120)
        view = await later.w.view(request_id)
        assert view.session is not None
        assert (view.request.state, view.session.state) == (RequestState.UNAVAILABLE, SessionState.FAILED)
        texts = [
            str(one.body.get("text")) for one in (await later.w.books()).notifications if one.destination == ALICE.id
        ]
        assert [text for text in texts if "request it again" in text]
        assert len(w.engine.creates) == 1
        # Back to work within a minute.
        again = await later.w.approved(candidates=("runpod",))
        await later.run(60)
        assert [one.state for one in (await later.w.view(again)).instances] == [InstanceState.LIVE]
        (event,) = [one for one in (await later.w.books()).events if one.kind == EventKind.LEDGER_ACCEPTED]
        assert event.actor == ADA.ref
        assert (await later.accept()).code == "not_older"
        assert await later.w.violations() == []


async def test_an_extended_machine_lives_until_the_end_that_the_copy_of_ends_knows(
    running: Service, copies: Copies
) -> None:
    w = running.w
    request_id = await w.running(candidates=("vast",), hours=Decimal(1))
    copy = await copies.take(*running.databases)
    assert (await w.more(request_id, "2")).code == "asked"
    await running.run(15)
    asked = next(one for one in (await w.books()).requests if one.parent_id == request_id)
    assert (await w.decide(asked.id)).code == "approved"
    await running.run(15)
    approved = (await w.view(request_id)).session
    assert approved is not None
    assert approved.deadline is not None
    w.clock.advance(HOUR_S + 1200)
    async with restarted(running, copy) as later:
        await later.run(600)
        assert len(w.alive()) == 1
        (row,) = ends_copy.load(later.folder / ends_copy.NAME).rows
        assert row.deadline == approved.deadline
        session = (await later.w.view(request_id)).session
        assert session is not None
        assert session.deadline == approved.deadline
        assert [text for text in await later.said() if "; the ledger had " in text]
        assert (await later.accept()).ok
        await later.run((approved.deadline - w.clock.now() - timedelta(seconds=30)).total_seconds(), 60)
        assert len(w.alive()) == 1
        await later.run(240)
        assert w.alive() == []
        session = (await later.w.view(request_id)).session
        assert session is not None
        assert (session.state, session.end_code) == (SessionState.TERMINATED, EndReason.RESERVATION_OVER)
        assert await later.w.violations() == []


async def test_without_any_record_operators_are_paged_twice_before_anything_ends(
    running: Service, copies: Copies
) -> None:
    w = running.w
    await w.running(candidates=("vast",), hours=Decimal(1))
    copy = await copies.take(*running.databases)
    w.clock.advance(HOUR_S)
    lose_records(running.folder)
    async with restarted(running, copy) as later:
        await later.run(1500, 60)
        assert (len(w.alive()), later.pages) == (1, ["ledger/older"])
        while w.alive():
            assert later.pages.count("ledger/older") == 1
            await later.run(15)
        assert later.pages == ["ledger/older", "ledger/older/1"]
        assert (await later.said())[0].startswith("Nothing shows how old the ledger is")


async def test_a_ledger_that_is_not_older_goes_on_and_a_shortened_end_stays_short(running: Service) -> None:
    w = running.w
    request_id = await w.running(candidates=("vast",), hours=Decimal(2))
    await running.run(15)
    session = (await w.view(request_id)).session
    assert session is not None
    await w.shorten(session.id, timedelta(hours=1))
    url = w.ctx.db.url.render_as_string(hide_password=False)
    async with restarted(running, url) as later:
        await later.run(30)
        assert (later.pages, await later.said()) == ([], [])
        after = (await later.w.view(request_id)).session
        assert after is not None
        assert session.deadline is not None
        assert after.deadline == session.deadline - timedelta(hours=1)
        assert (
            await later.w.view(await later.w.approved(candidates=("runpod",)))
        ).request.state is RequestState.APPROVED
