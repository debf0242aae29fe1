"""Who approves in whose place."""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger.core.events import record
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.models import Delegation
from ledger.queries.access import Whose
from ledger.queries.delegations import delegators_of, end_delegations, given_by, in_force, said_before
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)
NOW = START + HOUR
CY = Actor(ActorKind.SLACK, "UCY", "T1")


def given(name: str, by: Actor, to: Actor, *, until: datetime = NOW + HOUR, **values: datetime) -> Delegation:
    made = {"created_at": START} | values
    return Delegation(id=name, delegator=by.ref, delegate=to.ref, until=until, made_by=by.ref, **made)


async def test_delegations_in_force_from_and_to_somebody(db: Database) -> None:
    async with db.write() as tx:
        tx.add_all(
            [
                given("late", rows.ADA, rows.BEN, created_at=START + HOUR),
                given("ada_ben", rows.ADA, rows.BEN, until=NOW + timedelta(microseconds=1)),
                given("cy_ben", CY, rows.BEN),
                given("ben_cy", rows.BEN, CY),
                given("over", rows.ADA, rows.BEN, until=NOW),
                given("ended", rows.ADA, rows.BEN, ended_at=START),
            ]
        )
        record(tx, at=NOW, actor=rows.ADA, subject="late", kind=EventKind.DELEGATION_MADE, key="call-1")
    ada, ben, cy = (Whose.of([who]) for who in (rows.ADA, rows.BEN, CY))
    async with db.read() as tx:
        assert [one.id for one in await delegators_of(tx, ben, NOW)] == ["ada_ben", "cy_ben", "late"]
        assert [one.id for one in await delegators_of(tx, ada, NOW)] == []
        assert [one.id for one in await given_by(tx, ada, NOW)] == ["ada_ben", "late"]
        assert [one.id for one in await given_by(tx, ada, START)] == ["ada_ben", "over", "late"]
        assert [one.id for one in await in_force(tx, None, NOW)] == ["ada_ben", "ben_cy", "cy_ben", "late"]
        assert [one.id for one in await in_force(tx, cy, NOW)] == ["ben_cy", "cy_ben"]
        assert await said_before(tx, ada, "call-1", START)
        assert not await said_before(tx, ada, "call-1", NOW)
        assert not await said_before(tx, ada, "call-2", START)
        assert not await said_before(tx, ben, "call-1", START)
    async with db.write() as tx:
        await end_delegations(tx, ["late", "ended"], rows.BEN.ref, NOW)
    async with db.read() as tx:
        assert [one.id for one in await given_by(tx, ada, NOW)] == ["ada_ben"]
        late, ended = await tx.get_one(Delegation, "late"), await tx.get_one(Delegation, "ended")
        assert (late.ended_at, late.ended_by) == (NOW, rows.BEN.ref)
        assert (ended.ended_at, ended.ended_by) == (START, None)
