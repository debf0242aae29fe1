"""Graces: which are open, of which machines, and what counts while one lasts."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.ids import new_id
from ledger.kernel.states import OPEN_INSTANCE, InstanceState, SessionState
from ledger.kernel.steps.grace import AtRisk, Cause, GraceChoice, GraceOutcome
from ledger.models import GraceRow, Instance
from ledger.queries.runs.graces import (
    IS_BESIDE,
    IS_REPLACED,
    add_grace,
    change_grace,
    graces_of_sessions,
    newest_grace,
    open_grace,
    open_graces,
    replaced_of_session,
)
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)
ENDED: dict[str, Any] = {"ended_at": START + HOUR, "outcome": GraceOutcome.RECOVERED}


async def running(tx: Tx, state: InstanceState = InstanceState.LIVE) -> Instance:
    """The machine of a running session."""
    return await rows.instance(tx, state, of=await rows.session(tx, SessionState.RUNNING))


async def test_open_graces_come_with_their_machines_the_oldest_first(db: Database) -> None:
    async with db.read() as tx:
        assert await open_graces(tx) == []
    async with db.write() as tx:
        second, first, recovered = [await running(tx) for _ in range(3)]
        older = await rows.grace(tx, first)
        newer = await rows.grace(tx, second)
        await rows.grace(tx, recovered, **ENDED)
    async with db.read() as tx:
        assert [(grace.id, row.id, session.id) for grace, row, session in await open_graces(tx)] == [
            (older.id, first.id, first.session_id),
            (newer.id, second.id, second.session_id),
        ]


async def test_the_open_grace_and_the_newest_one_of_a_machine(db: Database) -> None:
    async with db.write() as tx:
        row, other = await running(tx), await running(tx)
        await rows.grace(tx, row, **ENDED)
        last = await rows.grace(tx, row, **ENDED)
        elsewhere = await rows.grace(tx, other)
        assert await open_grace(tx, row.id) is None
        newest = await newest_grace(tx, row.id)
        assert newest is not None
        assert newest.id == last.id
        again = await rows.grace(tx, row)
    async with db.read() as tx:
        for find in (open_grace, newest_grace):
            for instance_id, grace_id in ((row.id, again.id), (other.id, elsewhere.id)):
                grace = await find(tx, instance_id)
                assert grace is not None
                assert grace.id == grace_id
            assert await find(tx, "ins_none") is None


async def test_sessions_have_the_grace_that_is_open(db: Database) -> None:
    async with db.write() as tx:
        row, recovered, unread, bare = [await running(tx) for _ in range(4)]
        await rows.grace(tx, row, **ENDED)
        grace = await rows.grace(tx, row)
        await rows.grace(tx, recovered, **ENDED)
        await rows.grace(tx, unread)
    async with db.read() as tx:
        graces = await graces_of_sessions(tx, [row.session_id, recovered.session_id, bare.session_id])
        assert {key: value.id for key, value in graces.items()} == {row.session_id: grace.id}
        assert await graces_of_sessions(tx, []) == {}


async def test_of_two_graces_of_a_session_the_newer_one_counts(db: Database) -> None:
    async with db.write() as tx:
        first = await running(tx)
        await rows.grace(tx, first, replaced=True)
        newer = await rows.grace(tx, await rows.replacement(tx, first))
    async with db.read() as tx:
        assert {key: value.id for key, value in (await graces_of_sessions(tx, [first.session_id])).items()} == {
            first.session_id: newer.id
        }


@pytest.mark.parametrize("state", InstanceState)
async def test_a_replaced_machine_counts_while_its_cloud_may_have_it(db: Database, state: InstanceState) -> None:
    async with db.write() as tx:
        row = await running(tx, state)
        grace = await rows.grace(tx, row, replaced=True)
        await rows.replacement(tx, row)
    async with db.read() as tx:
        pair = await replaced_of_session(tx, row.session_id)
        if state in OPEN_INSTANCE:
            assert pair is not None
            assert (pair[0].id, pair[1].id) == (grace.id, row.id)
        else:
            assert pair is None


async def test_a_machine_without_a_replacement_or_out_of_grace_is_none_that_is_replaced(db: Database) -> None:
    async with db.write() as tx:
        waits, recovered, other = [await running(tx) for _ in range(3)]
        await rows.grace(tx, waits)
        await rows.grace(tx, recovered, replaced=True, **ENDED)
        await rows.grace(tx, other, replaced=True)
    async with db.read() as tx:
        assert await replaced_of_session(tx, waits.session_id) is None
        assert await replaced_of_session(tx, recovered.session_id) is None
        assert await replaced_of_session(tx, "ses_none") is None


async def test_machines_that_are_replaced_and_those_beside_them(db: Database) -> None:
    async with db.write() as tx:
        replaced, recovered, waits, alone = [await running(tx) for _ in range(4)]
        beside, after = await rows.replacement(tx, replaced), await rows.replacement(tx, recovered)
        await rows.replacement(tx, waits)
        await rows.grace(tx, replaced, replaced=True)
        await rows.grace(tx, recovered, replaced=True, **ENDED)
        await rows.grace(tx, waits)
    async with db.read() as tx:
        assert [row.id for row in await tx.scalars(select(Instance).where(IS_REPLACED))] == [replaced.id]
        # What was launched beside a machine that was kept stays such a machine.
        besides = await tx.scalars(select(Instance.id).where(IS_BESIDE))
        assert set(besides) == {beside.id, after.id}
        assert alone.id not in set(await tx.scalars(select(Instance.id).where(IS_BESIDE | IS_REPLACED)))


def new_grace(of: Instance, **values: Any) -> GraceRow:
    """A grace that is not stored yet."""
    row = GraceRow(
        id=new_id("grc", START),
        instance_id=of.id,
        session_id=of.session_id,
        code="account_paused",
        cause=Cause.ACCOUNT,
        account_code="no_credit",
        at_risk=AtRisk.DISK,
        since=START,
        until=START + HOUR,
        usd_h=Decimal("0.05"),
        rated_at=START,
        spent_usd=Decimal(0),
        limit_usd=Decimal("0.50"),
    )
    for name, value in values.items():
        setattr(row, name, value)
    return row


async def test_a_machine_gets_one_open_grace_at_a_time(db: Database) -> None:
    async with db.write() as tx:
        row, other = await running(tx), await running(tx)
        grace = new_grace(row, replaced=False, choice=GraceChoice.WAIT, chosen_by=rows.ADA.ref)
        assert await add_grace(tx, grace)
        assert not await add_grace(tx, new_grace(row, limit_usd=Decimal(9)))
        assert await add_grace(tx, new_grace(other))
    async with db.read() as tx:
        stored = await open_grace(tx, row.id)
        assert stored is not None
        assert (stored.id, stored.limit_usd, stored.usd_h) == (grace.id, Decimal("0.50"), Decimal("0.05"))
        assert (stored.cause, stored.account_code, stored.at_risk) == (Cause.ACCOUNT, "no_credit", AtRisk.DISK)
        assert (stored.choice, stored.chosen_by, stored.replaced) == (GraceChoice.WAIT, rows.ADA.ref, False)
        assert (stored.ended_at, stored.outcome) == (None, None)
        # A column without a value gets the one that a new row has.
        bare = await open_grace(tx, other.id)
        assert bare is not None
        assert (bare.choice, bare.replaced) == (None, False)
    async with db.write() as tx:
        assert await change_grace(tx, grace.id, **ENDED)
        assert await add_grace(tx, new_grace(row))


async def test_the_database_refuses_a_second_open_grace(db: Database) -> None:
    async with db.write() as tx:
        row = await running(tx)
        await rows.grace(tx, row)
    with pytest.raises(IntegrityError):
        async with db.write() as tx:
            await rows.grace(tx, row)


async def test_only_an_open_grace_is_changed(db: Database) -> None:
    async with db.write() as tx:
        row, other = await running(tx), await running(tx)
        grace, untouched = await rows.grace(tx, row), await rows.grace(tx, other)
        choice = {"choice": GraceChoice.GIVE_UP, "chosen_by": rows.BEN.ref}
        assert await change_grace(tx, grace.id, **choice)
        assert await change_grace(tx, grace.id, **ENDED)
        assert not await change_grace(tx, grace.id, choice=GraceChoice.WAIT, ended_at=None)
        assert not await change_grace(tx, "grc_none", choice=GraceChoice.WAIT)
    async with db.read() as tx:
        stored = await newest_grace(tx, row.id)
        assert stored is not None
        assert (stored.choice, stored.chosen_by) == (GraceChoice.GIVE_UP, rows.BEN.ref)
        assert (stored.ended_at, stored.outcome) == (START + HOUR, GraceOutcome.RECOVERED)
        still = await open_grace(tx, other.id)
        assert still is not None
        assert (still.id, still.choice) == (untouched.id, None)
