"""The journal of a request: everything that happened, sealed in order, and a change is named."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import update

from bot.services.audit import journal
from ledger.core.events import record
from ledger.kernel.event_kind import EventKind
from ledger.models import EventHash
from tests.support.world import BOB, World


async def test_everything_about_a_request_is_there_sealed_and_whole(w: World) -> None:
    request_id = await w.running()
    more = str((await w.more(request_id)).data["request_id"])
    await w.decide(more, BOB)
    fresh = await journal.audit(w.ctx.db, request_id)
    assert (fresh.sealed, fresh.broken) == (0, ())
    w.clock.advance(11)
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
    w.clock.advance(11)
    replicas = [w.replica() for _ in range(3)]
    await asyncio.gather(*(journal.hash_events_due(one.ctx) for one in replicas))
    for one in replicas:
        await one.ctx.db.close()
    found = await journal.audit(w.ctx.db, request_id)
    assert (found.sealed, found.broken) == (len(found.events), ())
    async with w.ctx.db.write() as tx:
        await tx.execute(
            update(EventHash).where(EventHash.subject == request_id, EventHash.number == 2).values(hash="0" * 64)
        )
    (broken,) = (await journal.audit(w.ctx.db, request_id)).broken
    assert broken.startswith(f"{request_id}: event 2 of")
    w.clock.advance(7200)
    for hours in (0, 1.9):  # What happens now is sealed next; what somebody puts into the past never is.
        async with w.ctx.db.write() as tx:
            at = w.clock.now() - timedelta(hours=hours)
            record(tx, at=at, actor=BOB, subject=request_id, kind=EventKind.REQUEST_VOTE, reason="Approved.")
        w.clock.advance(11)
        assert await journal.hash_events_due(w.ctx) == (hours == 0)
    _, put_in = (await journal.audit(w.ctx.db, request_id)).broken
    assert "(request.vote) was not there" in put_in
