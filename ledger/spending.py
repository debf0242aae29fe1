"""What was spent and what may still be spent, by whose it is: sums in the database, a fixed number of queries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, and_, func, literal, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from ledger.doors import Whose
from ledger.models import GrantRow, Instance, LedgerEntry, Session
from ledger.states import LIVE_SESSION, GrantState

#: Kinds of entries that are money spent.
SPENT = ("accrue", "true_up", "loss", "external")


@dataclass(frozen=True, slots=True)
class Purse:
    """Whose spending is meant: everybody's where both are None."""

    whose: Whose | None = None
    label: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """The same as conditions on the sessions."""
        found = [] if self.whose is None else [self.whose.where(Session.owner)]
        return found if self.label is None else [*found, Session.label == self.label]


EVERYBODY = Purse()


async def spent(tx: AsyncSession, purse: Purse, since: datetime | None) -> Decimal:
    """Dollars booked as spent since then; of everybody, with what strays and other tools cost."""
    query = select(func.sum(LedgerEntry.amount_usd)).where(LedgerEntry.kind.in_(SPENT))
    if since is not None:
        query = query.where(LedgerEntry.at >= since)
    if purse.conditions():
        query = query.join(Session, Session.id == LedgerEntry.session_id).where(*purse.conditions())
    return await tx.scalar(query) or Decimal(0)


async def outstanding(tx: AsyncSession, purse: Purse) -> tuple[Decimal, Decimal]:
    """`(dollars, dollars per hour)` that approvals in force may still spend.

    A replacement is paid from its approval's own amount, so of each approval the largest amount counts, once.
    """
    given_back = aliased(LedgerEntry)
    released = select(given_back.id).where(given_back.key == literal("release/").concat(GrantRow.id)).exists()
    in_force = (
        Session.state.in_(LIVE_SESSION),
        GrantRow.state.in_([GrantState.OPEN, GrantState.USED]),
        ~released,
        *purse.conditions(),
    )
    amounts: Any = await tx.execute(
        select(
            GrantRow.session_id,
            GrantRow.approval_id,
            func.max(GrantRow.total_cap_usd),
            func.max(GrantRow.price_cap_usd_h),
        )
        .join(Session, Session.id == GrantRow.session_id)
        .where(*in_force)
        .group_by(GrantRow.session_id, GrantRow.approval_id)
    )
    caps: dict[str, Decimal] = {}
    rates: dict[str, Decimal] = {}
    for session_id, _, cap_usd, rate_usd_h in amounts:
        caps[session_id] = caps.get(session_id, Decimal(0)) + cap_usd
        rates[session_id] = max(rates.get(session_id, Decimal(0)), rate_usd_h)
    used: Any = await tx.execute(
        select(LedgerEntry.session_id, func.sum(LedgerEntry.amount_usd))
        .join(Instance, Instance.id == LedgerEntry.instance_id)
        .join(GrantRow, GrantRow.id == Instance.grant_id)
        .join(Session, Session.id == LedgerEntry.session_id)
        .where(LedgerEntry.kind == "accrue", *in_force)
        .group_by(LedgerEntry.session_id)
    )
    for session_id, amount_usd in used:
        caps[session_id] = max(caps.get(session_id, Decimal(0)) - amount_usd, Decimal(0))
    return sum(caps.values(), Decimal(0)), sum(rates.values(), Decimal(0))


async def outcomes(
    tx: AsyncSession, purse: Purse, codes: Collection[str], since: datetime, until: datetime
) -> list[tuple[str, Decimal]]:
    """`(end code, dollars booked in all)` of each session that ended with one of `codes` in [since, until)."""
    booked = and_(LedgerEntry.session_id == Session.id, LedgerEntry.kind.in_(SPENT))
    rows: Any = await tx.execute(
        select(Session.end_code, func.sum(LedgerEntry.amount_usd))
        .outerjoin(LedgerEntry, booked)
        .where(Session.end_code.in_(codes), Session.ended_at >= since, Session.ended_at < until, *purse.conditions())
        .group_by(Session.id, Session.end_code)
    )
    return [(code, amount_usd or Decimal(0)) for code, amount_usd in rows]


#: What costs can be grouped by.
GROUPS: dict[str, Any] = {
    "owner": Session.owner,
    "cloud": Instance.cloud,
    "gpu": Session.gpu,
    "label": Session.label,
}


async def costs(tx: AsyncSession, purse: Purse, by: str, since: datetime, until: datetime) -> list[tuple[str, Decimal]]:
    """Dollars booked in [since, until) per value of `by`, the greatest first; without what belongs to no session."""
    column, total = GROUPS[by], func.sum(LedgerEntry.amount_usd)
    rows: Any = await tx.execute(
        select(column, total)
        .select_from(LedgerEntry)
        .join(Session, Session.id == LedgerEntry.session_id)
        .outerjoin(Instance, Instance.id == LedgerEntry.instance_id)
        .where(LedgerEntry.kind.in_(SPENT), LedgerEntry.at >= since, LedgerEntry.at < until, *purse.conditions())
        .group_by(column)
    )
    return sorted(((str(name or ""), amount) for name, amount in rows), key=lambda one: (-one[1], one[0]))
