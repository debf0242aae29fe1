"""With whom a request is shared, and whose people are the same while a run moves."""

from __future__ import annotations

from datetime import timedelta

from ledger.engine.db import Database
from ledger.kernel.states import RequestState, SessionState
from ledger.kernel.steps.relocation_step import OVER, MigrationStep
from ledger.models import Request, Share
from ledger.queries.people.shares import moving_with, shares_of
from tests.support import rows
from tests.support.clock import START

MINUTE = timedelta(minutes=1)


async def test_shares_come_in_the_order_in_which_they_were_added(db: Database) -> None:
    async with db.write() as tx:
        request, other, bare = [await rows.request(tx, RequestState.APPROVED) for _ in range(3)]
        added = [
            (request, "slack:UZOE", 0),
            (request, "slack:UCAT", 1),
            (request, "operator:bob", 1),
            (other, "slack:UDAN", 0),
        ]
        for shared, person, minute in added:
            facts = {"shared_by": rows.ADA.ref, "created_at": START + minute * MINUTE}
            tx.add(Share(request_id=shared.id, person=person, **facts))
    async with db.read() as tx:
        assert [share.person for share in await shares_of(tx, request.id)] == [
            "slack:UZOE",
            "operator:bob",
            "slack:UCAT",
        ]
        assert [share.person for share in await shares_of(tx, other.id)] == ["slack:UDAN"]
        assert await shares_of(tx, bare.id) == []


async def test_both_sides_of_an_open_move_have_the_same_people(db: Database) -> None:
    async with db.write() as tx:
        for step in MigrationStep:
            session = await rows.session(tx, SessionState.RUNNING)
            row = await rows.migration(tx, session, step)
            sides = ([], []) if step in OVER else ([row.request_id], [session.request_id])
            assert await moving_with(tx, session.request_id) == sides[0], step
            assert await moving_with(tx, row.request_id) == sides[1], step
        assert await moving_with(tx, (await rows.request(tx)).id) == []


async def test_a_target_that_moves_on_has_both_neighbours(db: Database) -> None:
    async with db.write() as tx:
        first = await rows.session(tx, SessionState.TERMINATING)
        second = await rows.session(tx, SessionState.RUNNING)
        target = await rows.request(tx)
        middle = await tx.get_one(Request, second.request_id)
        await rows.migration(tx, first, MigrationStep.ADVANCED, to=middle)
        await rows.migration(tx, second, to=target)
    async with db.read() as tx:
        assert await moving_with(tx, middle.id) == sorted([first.request_id, target.id])
        assert await moving_with(tx, first.request_id) == [middle.id]
        assert await moving_with(tx, target.id) == [middle.id]
