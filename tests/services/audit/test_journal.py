"""The journal of a request: everything that happened, sealed in order, and a change is named."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import delete, select, update

from bot.rules.access.scopes import Scope
from bot.services.access.api_keys import Principal
from bot.services.audit import event_stream, journal
from bot.services.runtime.event_order import EventNumbering
from bot.services.webhooks import delivery, subscriptions
from bot.services.webhooks.subscriptions import NewWebhook
from ledger.core.events import record
from ledger.core.writes import Tx
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.models import Event, EventHash, EventOrder, UnnumberedEvent, WebhookDelivery
from ledger.queries.event_order import newest_position
from tests.support import rows
from tests.support.world import BOB, World

ADA = Actor(ActorKind.OPERATOR, "ada")
ROOT = Principal("", ADA, ADA, frozenset(Scope))


async def test_everything_about_a_request_is_there_sealed_and_whole(w: World) -> None:
    request_id = await w.running()
    more = str((await w.more(request_id)).data["request_id"])
    await w.decide(more, BOB)
    fresh = await journal.audit(w.ctx.db, request_id)
    assert (fresh.hashed, fresh.broken) == (0, ())
    assert await journal.hash_events_due(w.ctx) >= len(fresh.events)
    assert await journal.hash_events_due(w.ctx) == 0
    await w.end(request_id)
    await w.run(120, 30)
    await journal.hash_events_due(w.ctx)
    found = await journal.audit(w.ctx.db, more)  # Named by any of its parts.
    assert found.owner == "slack:T1/UALICE"
    assert (found.broken, len(found.events) > len(fresh.events)) == ((), True)
    assert {"session.moved", "instance.moved", "session.extended", "grant.moved"} <= {e.kind for e in found.events}
    assert {event.subject.partition("_")[0] for event in found.events} == {"req", "ses", "ins", "grt"}
    assert list(found.events) == sorted(found.events, key=lambda event: (event.at, event.id))
    with pytest.raises(LookupError):
        await journal.audit(w.ctx.db, "zzzzzz")


@pytest.mark.both_databases
async def test_a_change_is_named_and_two_replicas_seal_once(w: World) -> None:
    request_id = await w.approved()
    replicas = [w.replica() for _ in range(3)]
    await asyncio.gather(*(journal.hash_events_due(one.ctx) for one in replicas))
    for one in replicas:
        await one.ctx.db.close()
    found = await journal.audit(w.ctx.db, request_id)
    assert (found.hashed, found.broken) == (len(found.events), ())
    async with w.ctx.db.write() as tx:
        await tx.execute(
            update(EventHash).where(EventHash.subject == request_id, EventHash.number == 2).values(hash="0" * 64)
        )
    (broken,) = (await journal.audit(w.ctx.db, request_id)).broken
    assert broken.startswith(f"{request_id}: event 2 of")
    w.clock.advance(7200)
    late = await put(w, request_id, hours=1.9)  # It is in the chain, behind what was there, and everybody sees it.
    await put(w, request_id, hours=0)
    assert await journal.hash_events_due(w.ctx) == 2
    found = await journal.audit(w.ctx.db, request_id)
    assert (found.late, [event.id for event in found.events].index(late)) == ((late,), len(found.events) - 2)
    assert found.hashed == len(found.events)


async def put(w: World, subject: str, *, hours: float) -> str:
    """Write an event now whose own time is some hours ago; returns its id."""
    async with w.ctx.db.write() as tx:
        at = w.clock.now() - timedelta(hours=hours)
        record(tx, at=at, actor=BOB, subject=subject, kind=EventKind.REQUEST_VOTE, reason="Approved.")
        return next(row.id for row in tx.new if isinstance(row, Event))


@pytest.mark.both_databases
async def test_an_event_that_was_put_in_behind_the_order_is_named(w: World) -> None:
    request_id = await w.approved()
    await journal.hash_events_due(w.ctx)
    without, between = await put(w, request_id, hours=0), await put(w, request_id, hours=0)
    assert (await journal.audit(w.ctx.db, request_id)).broken == ()  # Their numbers come within a second.
    async with w.ctx.db.write() as tx:
        await tx.execute(delete(UnnumberedEvent))
        # Somebody with access to the database leaves a gap and fills it.
        newest = await newest_position(tx)
        tx.add(EventOrder(position=newest + 2, event_id=between))
    async with w.ctx.db.write() as tx:
        tx.add(EventHash(event_id=between, subject="other", number=1, hash="0" * 64, at=w.clock.now()))
        forged = await put_at(tx, w, request_id, newest + 1)
    broken = (await journal.audit(w.ctx.db, request_id)).broken
    assert f"{request_id}: {without} (request.vote) has no position in the journal" in broken
    assert f"{request_id}: {forged} (request.vote) was added after that part was hashed" in broken


async def put_at(tx: Tx, w: World, subject: str, position: int) -> str:
    event = await rows.event(tx, EventKind.REQUEST_VOTE, subject, at=w.clock.now())
    await tx.execute(delete(UnnumberedEvent))
    tx.add(EventOrder(position=position, event_id=event.id))
    return event.id


@pytest.mark.both_databases
async def test_a_clock_that_steps_forward_and_back_stops_no_hashing(w: World) -> None:
    request_id = await w.approved()
    w.clock.jump(timedelta(hours=3))
    await put(w, request_id, hours=0)
    assert await journal.hash_events_due(w.ctx) > 1
    w.clock.jump(timedelta(hours=-3))
    await put(w, request_id, hours=0)
    await put(w, request_id, hours=-2)
    assert await journal.hash_events_due(w.ctx) == 2
    found = await journal.audit(w.ctx.db, request_id)
    assert (found.hashed, found.broken) == (len(found.events), ())


@pytest.mark.both_databases
async def test_a_commit_that_is_90_seconds_late_reaches_stream_webhook_and_chain_once(w: World) -> None:
    """Of several replicas, each as the ticker runs it; other events were delivered and hashed in between."""
    request_id = await w.approved()
    w.tune(webhook_networks=("127.0.0.1/32",))
    made = await subscriptions.create(w.ctx, ROOT, NewWebhook("https://127.0.0.1/hooks", ("approval",)))
    assert made.ok, made
    stream = await event_stream.begin(w.ctx, ROOT, None)
    assert isinstance(stream, event_stream.Following)
    replicas = [w, w.replica(), w.replica()]
    received: list[str] = []

    async def pass_over() -> None:
        """Everything that reads the journal, at once in each replica; then the stream, until it has nothing more."""
        await asyncio.gather(*(EventNumbering(one.ctx).look() for one in replicas))
        await asyncio.gather(*(delivery.fan_out(one.ctx) for one in replicas))
        await asyncio.gather(*(journal.hash_events_due(one.ctx) for one in replicas))
        while found := await stream.look():
            received.extend(one.id for one in found)

    expected = []
    for late_s in (0, 90, 0, 7200, 0):
        w.clock.advance(20)
        async with w.ctx.db.write() as tx:
            at = w.clock.now() - timedelta(seconds=late_s)
            event = await rows.event(tx, EventKind.REQUEST_MADE, request_id, at=at, after="quoting")
        expected.append(event.id)
        await pass_over()
        await pass_over()
    assert [one for one in received if one in expected] == expected
    assert len(received) == len(set(received))
    async with w.ctx.db.read() as tx:
        delivered = sorted(await tx.scalars(select(WebhookDelivery.event_id)))
        hashed = list(await tx.scalars(select(EventHash.event_id).where(EventHash.event_id.in_(expected))))
    assert (delivered, sorted(hashed)) == (sorted(expected), sorted(expected))
    found = await journal.audit(w.ctx.db, request_id)
    assert (found.broken, found.late) == ((), (expected[3],))
    for one in replicas[1:]:
        await one.ctx.db.close()
