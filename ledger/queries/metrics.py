"""Count the ledger in figures: how much there is, what it costs, and how much work waits."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import LIVE_SESSION, UNDECIDED, InboxState, InstanceState, NotificationState, RequestState
from ledger.models import Inbox, Instance, LedgerEntry, Notification, Request, Session


@dataclass(frozen=True, slots=True)
class Figures:
    """Hold the counts of requests, sessions and instances by state, the running cost per hour, and the booked total."""

    requests: dict[str, int]
    sessions: dict[str, int]
    instances: dict[tuple[str, str], int]
    usd_per_hour: dict[str, Decimal]
    booked_usd: Decimal


async def figures(tx: AsyncSession) -> Figures:
    """Count everything that has not ended; `booked_usd` is of all time."""
    requests = await _counted(tx, Request.state, Request.state.in_(UNDECIDED))
    sessions = await _counted(tx, Session.state, Session.state.in_(LIVE_SESSION))
    over = (InstanceState.GONE, InstanceState.REJECTED, InstanceState.TOMBSTONE)
    rows = await tx.execute(
        select(Instance.cloud, Instance.state, func.count(), func.sum(Instance.price_usd_h))
        .where(Instance.state.not_in(over))
        .group_by(Instance.cloud, Instance.state)
    )
    found = [(cloud, str(state), number, price) for cloud, state, number, price in rows]
    live = {cloud: price or Decimal(0) for cloud, state, _, price in found if state == InstanceState.LIVE}
    booked = await tx.scalar(select(func.sum(LedgerEntry.amount_usd)).where(LedgerEntry.kind == EntryKind.ACCRUE))
    counts = {(cloud, state): number for cloud, state, number, _ in found}
    return Figures(requests, sessions, counts, live, booked or Decimal(0))


async def _counted(tx: AsyncSession, state: Any, where: ColumnElement[bool]) -> dict[str, int]:
    rows = await tx.execute(select(state, func.count()).where(where).group_by(state))
    return {str(name): number for name, number in rows}


async def waiting_rows(tx: AsyncSession) -> dict[str, int]:
    """Count the rows of each kind that still wait for their work."""
    waiting = {
        "inbox": select(func.count()).where(Inbox.state == InboxState.NEW),
        "quotes": select(func.count()).where(Request.state == RequestState.QUOTING),
        "creates": select(func.count()).where(Instance.state == InstanceState.READY),
        "outbox": select(func.count()).where(Notification.state == NotificationState.PENDING),
    }
    return {name: await tx.scalar(query) or 0 for name, query in waiting.items()}
