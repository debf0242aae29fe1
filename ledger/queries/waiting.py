"""Read what waits for an offer: its limits, and the approvals in advance that are still open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from decimal import Decimal
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.job import JobRequest
from ledger.kernel.states import GrantState, RequestState
from ledger.models import AdvanceApproval, Request, WaitLimits
from ledger.queries.access import Whose

#: While its request is in one of these, an approval in advance reserves budget.
RESERVES = frozenset({RequestState.WAITING, RequestState.QUOTING})


async def limits_of(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, WaitLimits]:
    """Return the limits of the requests that wait or waited."""
    rows = await tx.scalars(select(WaitLimits).where(WaitLimits.request_id.in_(sorted(request_ids))))
    return {row.request_id: row for row in rows}


async def jobs_of(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, JobRequest]:
    """Return the jobs of these requests, by their ids."""
    rows: Any = await tx.execute(select(Request.id, Request.job).where(Request.id.in_(sorted(request_ids))))
    return dict(rows.all())


async def waiting_jobs(tx: AsyncSession, limit: int) -> list[JobRequest]:
    """Return the jobs of requests that wait, the oldest first."""
    waits = select(Request.job).where(Request.state == RequestState.WAITING).order_by(Request.created_at)
    return list(await tx.scalars(waits.limit(limit)))


async def open_advances(tx: AsyncSession, request_id: str) -> list[AdvanceApproval]:
    """Return the approvals in advance of a request that were neither used nor revoked, the oldest first."""
    mine = (AdvanceApproval.request_id == request_id, AdvanceApproval.state == GrantState.OPEN)
    query = select(AdvanceApproval).where(*mine).order_by(AdvanceApproval.at, AdvanceApproval.id)
    return list(await tx.scalars(query))


async def advances_of(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, list[AdvanceApproval]]:
    """Return the open approvals in advance of many requests, by request, the oldest first."""
    found: defaultdict[str, list[AdvanceApproval]] = defaultdict(list)
    mine = (AdvanceApproval.request_id.in_(sorted(request_ids)), AdvanceApproval.state == GrantState.OPEN)
    for row in await tx.scalars(select(AdvanceApproval).where(*mine).order_by(AdvanceApproval.at)):
        found[row.request_id].append(row)
    return found


async def reserved_in_advance(tx: AsyncSession, whose: Whose | None, label: str | None) -> tuple[Decimal, Decimal]:
    """Return `(dollars, dollars per hour)` that approvals in advance reserve: the largest of each request, once."""
    query: Any = (
        select(func.max(AdvanceApproval.total_cap_usd), func.max(AdvanceApproval.price_cap_usd_h))
        .join(Request, Request.id == AdvanceApproval.request_id)
        .where(AdvanceApproval.state == GrantState.OPEN, Request.state.in_(RESERVES))
        .group_by(AdvanceApproval.request_id)
    )
    if whose is not None:
        query = query.where(whose.where(AdvanceApproval.owner))
    if label is not None:
        query = query.where(AdvanceApproval.label == label)
    rows = (await tx.execute(query)).all()
    return sum((total for total, _ in rows), Decimal(0)), sum((rate for _, rate in rows), Decimal(0))
