"""Rows of requests that wait: their limits, their jobs, and the approvals in advance."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from ledger.engine.db import Database
from ledger.kernel.ids import new_id
from ledger.kernel.states import GrantState, RequestState
from ledger.models import AdvanceApproval, Request, WaitLimits
from ledger.queries import lookups
from ledger.queries.access import Whose
from ledger.queries.nodes import startup_jobs
from tests.support import rows
from tests.support.clock import START

DAY = timedelta(days=1)


def advance(of: Request, state: GrantState, approver: str, at: datetime = START) -> AdvanceApproval:
    """One approval of the limits of a request."""
    return AdvanceApproval(
        id=new_id("adv", at), request_id=of.id, state=state, approver=approver, owner=of.requester, label="", gpu={},
        hours="2", price_cap_usd_h=Decimal(1), total_cap_usd=Decimal(3), until=START + DAY, at=at,
    )  # fmt: skip


async def test_limits_jobs_and_approvals_in_advance(db: Database) -> None:
    async with db.write() as tx:
        waits = await rows.request(tx, RequestState.WAITING)
        other = await rows.request(tx, at=START + DAY)
        tx.add(WaitLimits(request_id=waits.id, from_at=START, until=START + DAY, gpu={}, hours="2"))
        await tx.flush()
        later = advance(waits, GrantState.OPEN, rows.BEN.ref, START + DAY / 2)
        first = advance(waits, GrantState.OPEN, "operator:eve")
        tx.add_all([later, first, advance(waits, GrantState.VOID, "operator:kim")])
    async with db.read() as tx:
        assert list(await lookups.limits_of(tx, [waits.id, other.id])) == [waits.id]
        assert await lookups.jobs_of(tx, [waits.id, other.id]) == {waits.id: rows.JOB, other.id: rows.JOB}
        assert await lookups.waiting_jobs(tx, 10) == [rows.JOB]
        assert [one.id for one in await lookups.open_advances(tx, waits.id)] == [first.id, later.id]
        found = await lookups.advances_of(tx, [waits.id, other.id])
        assert {key: [one.id for one in many] for key, many in found.items()} == {waits.id: [first.id, later.id]}
        newest = await lookups.latest_request(tx, Whose.of([rows.ADA]))
        assert newest is not None
        assert newest.id == other.id
        assert await lookups.latest_request(tx, Whose.of([rows.BEN])) is None


async def test_the_job_of_a_machine_for_its_start_up(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx)
    async with db.read() as tx:
        assert await startup_jobs(tx, [row.id]) == {row.id: ("vast", rows.JOB)}
        assert await startup_jobs(tx, []) == {}
