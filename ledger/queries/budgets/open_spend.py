"""Sum up what approvals in force may still spend: settled sums by owner and project, and the sessions changed since.

Triggers mark each session whose amount may have changed (`UnsettledSpend`). A job settles marked sessions: it computes
them from their grants and entries and stores the result. A read takes the settled sums, without what marked sessions
added to them, and computes only those. It is one statement and so one state of the ledger: the result is the raw sum at
every moment. A test proves it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, case, delete, func, insert, literal, select, type_coerce, union_all
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_open_spend
from ledger.engine.db import insert_for
from ledger.kernel.columns import MicroUsd
from ledger.kernel.entry_kind import USED
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import LIVE_SESSION, GrantState
from ledger.models import Base, GrantRow, Instance, LedgerEntry, OpenSpend, Session, SessionOpenSpend, UnsettledSpend
from ledger.queries.rollup import TOTAL
from ledger.queries.session_costs import RELEASED, unsettled_sum
from ledger.queries.spend import Purse, reserved_in_advance

_NOTHING = literal(Decimal(0), MicroUsd())


def _together(alone: Any, of_set: Any) -> ColumnElement[Any]:
    """Return the largest amount of a session's grants; of a set of machines their sum."""
    return case((Session.nodes > 1, func.sum(of_set)), else_=func.max(alone))


def by_session(*conditions: ColumnElement[bool]) -> Any:
    """Build a query of what the grants of each live session may still spend, from its grants and entries.

    The largest grant of each approval counts, once: a replacement takes from the same amount. A set of machines has no
    replacements, and each machine has its share of the amount, so there they add up.
    """
    in_force = (
        Session.state.in_(LIVE_SESSION),
        GrantRow.state.in_([GrantState.OPEN, GrantState.USED]),
        ~RELEASED,
        *conditions,
    )
    rates = case((GrantRow.kind == GrantKind.HOLD, _NOTHING), else_=GrantRow.price_cap_usd_h)
    approved = (
        select(
            GrantRow.session_id,
            _together(GrantRow.total_cap_usd, GrantRow.total_cap_usd).label("cap_usd"),
            _together(GrantRow.price_cap_usd_h, rates).label("rate_usd_h"),
        )
        .join(Session, Session.id == GrantRow.session_id)
        .where(*in_force)
        .group_by(GrantRow.session_id, GrantRow.approval_id, Session.nodes)
        .subquery()
    )
    caps = select(
        approved.c.session_id,
        func.sum(approved.c.cap_usd).label("cap_usd"),
        func.max(approved.c.rate_usd_h).label("rate_usd_h"),
    ).group_by(approved.c.session_id)
    used = (
        select(LedgerEntry.session_id, -TOTAL, _NOTHING)
        .join(Instance, Instance.id == LedgerEntry.instance_id)
        .join(GrantRow, GrantRow.id == Instance.grant_id)
        .join(Session, Session.id == LedgerEntry.session_id)
        .where(LedgerEntry.kind.in_(USED), *in_force)
        .group_by(LedgerEntry.session_id)
    )
    # Grouped and not joined: a join of two sums is quadratic where the database guesses their sizes wrong.
    both = union_all(caps, used).subquery()
    left = (
        select(
            both.c.session_id, func.sum(both.c.cap_usd).label("usd"), func.max(both.c.rate_usd_h).label("rate_usd_h")
        )
        .group_by(both.c.session_id)
        .subquery()
    )
    return select(
        left.c.session_id,
        # A session that used more than its grants cover lowers no other one's sum.
        type_coerce(case((left.c.usd > _NOTHING, left.c.usd), else_=_NOTHING), MicroUsd).label("usd"),
        type_coerce(left.c.rate_usd_h, MicroUsd).label("rate_usd_h"),
    )


async def outstanding(
    tx: AsyncSession, purse: Purse, since: Collection[datetime | None]
) -> tuple[Decimal, Decimal, dict[datetime | None, Decimal]]:
    """Return `(dollars, dollars per hour)` that may still be spent, and what may have been used and is not booked.

    The first two are the largest grant of each approval, once, with what approvals in advance reserve. The last is what
    instances may have cost since each of these times beyond what is booked of them.
    """
    marked = select(UnsettledSpend.session_id)
    changed = by_session(Session.id.in_(marked), *purse.conditions()).subquery()
    every = union_all(
        select(OpenSpend.usd, OpenSpend.rate_usd_h).where(*purse.on(OpenSpend)),
        select(-SessionOpenSpend.usd, -SessionOpenSpend.rate_usd_h).where(
            SessionOpenSpend.session_id.in_(marked), *purse.on(SessionOpenSpend)
        ),
        select(changed.c.usd, changed.c.rate_usd_h),
    )
    each = every.subquery()
    totals = (type_coerce(func.sum(each.c.usd), MicroUsd), type_coerce(func.sum(each.c.rate_usd_h), MicroUsd))
    periods = list(dict.fromkeys(since))
    unsettled = (unsettled_sum(purse.conditions(), one).label(f"since_{n}") for n, one in enumerate(periods))
    sums: Any = select(*totals, *unsettled)
    open_usd, rate_usd_h, *amounts = (await tx.execute(sums)).one()
    ahead_usd, ahead_usd_h = await reserved_in_advance(tx, purse.whose, purse.label)
    by_period = dict(zip(periods, amounts, strict=True))
    return (open_usd or Decimal(0)) + ahead_usd, (rate_usd_h or Decimal(0)) + ahead_usd_h, by_period


async def wrong_sums(tx: AsyncSession) -> list[str]:
    """Return the sessions, and the owners with their projects, whose settled amounts are not what they must be."""
    raw = {session_id: amounts for session_id, *amounts in await tx.execute(by_session())}
    stored: dict[str, list[Decimal]] = {}
    summed: dict[tuple[str, str], tuple[Decimal, Decimal]] = {}
    for row in await tx.scalars(select(SessionOpenSpend)):
        stored[row.session_id] = [row.usd, row.rate_usd_h]
        usd, rate_usd_h = summed.get((row.owner, row.label), (Decimal(0), Decimal(0)))
        summed[row.owner, row.label] = (usd + row.usd, rate_usd_h + row.rate_usd_h)
    sums = {(row.owner, row.label): (row.usd, row.rate_usd_h) for row in await tx.scalars(select(OpenSpend))}
    settled = (raw.keys() | stored.keys()) - set(await tx.scalars(select(UnsettledSpend.session_id)))
    nothing = (Decimal(0), Decimal(0))
    wrong = [of for of in summed.keys() | sums.keys() if summed.get(of, nothing) != sums.get(of, nothing)]
    return [*sorted(one for one in settled if stored.get(one) != raw.get(one)), *sorted(map(" ".join, wrong))]


async def are_many(tx: AsyncSession, least: int) -> bool:
    """Whether there are at least so many marks."""
    there = await tx.scalar(select(UnsettledSpend.id).offset(least - 1).limit(1))
    return there is not None


async def settle(tx: AsyncSession, limit: int) -> int:
    """Settle the sessions of the oldest `limit` marks and drop those marks; return how many there were.

    A change that commits after the marks are read leaves a mark of its own, so a read computes that session again.
    """
    await lock_open_spend(tx)
    oldest = select(UnsettledSpend.id, UnsettledSpend.session_id).order_by(UnsettledSpend.id).limit(limit)
    marks = (await tx.execute(oldest)).all()
    if not marks:
        return 0
    session_ids = sorted({session_id for _, session_id in marks})
    stored, sums = _table(SessionOpenSpend), _table(OpenSpend)
    await _add(tx, session_ids, taken=True)
    await tx.execute(delete(stored).where(stored.c.session_id.in_(session_ids)))
    each = by_session(Session.id.in_(session_ids)).subquery()
    of_sessions = select(
        Session.id, Session.owner, func.coalesce(Session.label, literal("")), each.c.usd, each.c.rate_usd_h
    ).join(each, each.c.session_id == Session.id)
    columns = ["session_id", "owner", "label", "usd", "rate_usd_h"]
    await tx.execute(insert(stored).from_select(columns, of_sessions))
    await _add(tx, session_ids, taken=False)
    zero = literal(Decimal(0), MicroUsd())
    await tx.execute(delete(sums).where(sums.c.usd == zero, sums.c.rate_usd_h == zero))
    await tx.execute(delete(_table(UnsettledSpend)).where(UnsettledSpend.id.in_([mark_id for mark_id, _ in marks])))
    return len(marks)


async def _add(tx: AsyncSession, session_ids: Collection[str], *, taken: bool) -> None:
    """Add to the sums what is stored of these sessions, or take it from them."""
    stored, sums = _table(SessionOpenSpend), _table(OpenSpend)
    amounts = [func.sum(stored.c.usd), func.sum(stored.c.rate_usd_h)]
    mine = (
        select(stored.c.owner, stored.c.label, *(-one if taken else one for one in amounts))
        .where(stored.c.session_id.in_(session_ids))
        .group_by(stored.c.owner, stored.c.label)
    )
    adding = insert_for(tx, sums).from_select(["owner", "label", "usd", "rate_usd_h"], mine)
    grown = {name: sums.c[name] + adding.excluded[name] for name in ("usd", "rate_usd_h")}
    await tx.execute(adding.on_conflict_do_update(index_elements=["owner", "label"], set_=grown))


def _table(model: type[Base]) -> Any:
    return model.__table__
