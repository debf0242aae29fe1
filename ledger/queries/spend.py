"""Sum up what was spent and what may still be spent, by owner and project; read and write budgets that were set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, null, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.actor import ActorKind
from ledger.kernel.calendar_spans import spans
from ledger.kernel.entry_kind import SPENT
from ledger.kernel.states import GrantState, RollupTier
from ledger.models import (
    AdvanceApproval,
    Approval,
    BudgetLimit,
    Facet,
    LedgerEntry,
    Request,
    Session,
)
from ledger.queries.access import Whose
from ledger.queries.lookups import RESERVES
from ledger.queries.rollup import FACETS, TOTAL, daily, shares_of, sums_of


@dataclass(frozen=True, slots=True)
class Purse:
    """Say whose spending is meant: everybody's where both are None."""

    whose: Whose | None = None
    label: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Build the conditions on the sessions."""
        return self._on(Session.owner, Session.label)

    def on_facets(self) -> list[ColumnElement[bool]]:
        """Build the conditions on the facets of the rollup."""
        return self._on(Facet.owner, Facet.label)

    def on_entries(self) -> list[ColumnElement[bool]]:
        """Build the conditions on single entries."""
        return self._on(FACETS["owner"], FACETS["label"])

    def on(self, model: Any) -> list[ColumnElement[bool]]:
        """Build the conditions on the rows of another model that has an owner and a label."""
        return self._on(model.owner, model.label)

    def _on(self, owner: Any, label: Any) -> list[ColumnElement[bool]]:
        found = [] if self.whose is None else [self.whose.where(owner)]
        return found if self.label is None else [*found, label == self.label]


EVERYBODY = Purse()
#: What the references of programs and AI agents begin with.
PROGRAMS = (f"{ActorKind.CONSUMER}:", f"{ActorKind.AGENT}:")


async def sums(
    tx: AsyncSession, purse: Purse, by: tuple[str, ...], since: datetime | None, until: datetime | None = None
) -> list[tuple[tuple[str, ...], Decimal]]:
    """Return dollars booked in [since, until) per combination of the facets `by`, from the rollup."""
    parts = spans(since, until)
    if not parts:
        return []
    rows: Any = await tx.execute(sums_of(parts, by, purse.on_facets(), purse.on_entries()))
    return [(tuple(names), amount_usd or Decimal(0)) for *names, amount_usd in rows]


async def spent(tx: AsyncSession, purse: Purse, since: datetime | None, until: datetime | None = None) -> Decimal:
    """Return dollars booked as spent in [since, until); of everybody, with what orphans and other tools cost."""
    return sum((amount_usd for _, amount_usd in await sums(tx, purse, (), since, until)), Decimal(0))


async def counted(tx: AsyncSession, purse: Purse, since: datetime | None) -> Decimal:
    """Return dollars spent as budgets count them.

    Refunds to other tools lower what those tools cost, and never what we spent.
    """
    by_tool = await sums(tx, purse, ("tool",), since)
    return sum((max(usd, Decimal(0)) if tool else usd for (tool,), usd in by_tool), Decimal(0))


async def buckets(
    tx: AsyncSession, purse: Purse, tier: RollupTier, since: datetime, until: datetime
) -> dict[datetime, Decimal]:
    """Return dollars per hour, day or month (UTC) by when it began; both ends must be such a beginning."""
    return await daily(tx, tier, since, until, purse.on_facets(), purse.on_entries())


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


async def outcomes(
    tx: AsyncSession, purse: Purse, codes: Collection[str], since: datetime, until: datetime
) -> list[tuple[str, Decimal]]:
    """Return `(end code, dollars booked)` of each session that ended with one of `codes` in [since, until)."""
    booked = and_(LedgerEntry.session_id == Session.id, LedgerEntry.kind.in_(SPENT))
    rows: Any = await tx.execute(
        select(Session.end_code, TOTAL)
        .outerjoin(LedgerEntry, booked)
        .where(Session.end_code.in_(codes), Session.ended_at >= since, Session.ended_at < until, *purse.conditions())
        .group_by(Session.id, Session.end_code)
    )
    return [(code, amount_usd or Decimal(0)) for code, amount_usd in rows]


#: What costs can be grouped by. A consumer is an owner that is a program.
GROUPS = ("owner", "consumer", "cloud", "gpu", "label", "tool")


async def costs(
    tx: AsyncSession,
    purse: Purse,
    since: datetime | None,
    until: datetime | None = None,
    by: Collection[str] = tuple(FACETS),
) -> dict[str, list[tuple[str, Decimal]]]:
    """Return dollars booked in [since, until) per value of each facet in `by`, the greatest first; from one read."""
    found: dict[str, list[tuple[str, Decimal]]] = {name: [] for name in GROUPS if name in by}
    parts = spans(since, until)
    if parts:
        for name, value, amount_usd in await tx.execute(shares_of(parts, by, purse.on_facets(), purse.on_entries())):
            if amount_usd:  # Nothing at all is summed to NULL.
                found[name].append((value, amount_usd))
    programs = [(name, amount) for name, amount in found.get("owner", ()) if name.startswith(PROGRAMS)]
    if "owner" in by:
        found["consumer"] = programs
    return {name: sorted(found[name], key=lambda one: (-one[1], one[0])) for name in GROUPS if name in found}


async def started_alone(tx: AsyncSession, whose: Whose, rule_prefix: str, since: datetime) -> Decimal:
    """Return the dollars that one person's approvals under rules with this prefix covered since then."""
    theirs = (whose.where(Approval.approver), Approval.rule.startswith(rule_prefix, autoescape=True))
    taken = select(func.sum(Approval.total_cap_usd)).where(Approval.at > since, Approval.decision == "approve")
    return await tx.scalar(taken.where(*theirs)) or Decimal(0)


async def approved_since(tx: AsyncSession, approver_prefix: str, since: datetime) -> Decimal:
    """Return the dollars covered since then by approvals of approvers with this prefix."""
    total = await tx.scalar(
        select(func.sum(Approval.total_cap_usd)).where(
            Approval.at > since, Approval.decision == "approve", Approval.approver.startswith(approver_prefix)
        )
    )
    return total or Decimal(0)


async def budgets_set(tx: AsyncSession) -> dict[str, dict[str, Decimal]]:
    """Return the limits that were set: scope → period → dollars."""
    found: defaultdict[str, dict[str, Decimal]] = defaultdict(dict)
    for row in await tx.scalars(select(BudgetLimit).order_by(BudgetLimit.scope, BudgetLimit.period)):
        found[row.scope][row.period] = row.limit_usd
    return dict(found)


async def thresholds_set(tx: AsyncSession) -> dict[tuple[str, str], tuple[Decimal, ...]]:
    """Return the thresholds that were set with a limit, as shares of it, by scope and period."""
    rows = await tx.scalars(select(BudgetLimit).where(BudgetLimit.thresholds.is_not(None)))
    return {(row.scope, row.period): tuple(map(Decimal, row.thresholds or ())) for row in rows}


async def put_budget(
    tx: AsyncSession,
    scope: str,
    period: str,
    limit_usd: Decimal | None,
    by: str,
    at: datetime,
    thresholds: Sequence[Decimal] | None = None,
) -> None:
    """Store a limit with its thresholds, or delete it when there is none."""
    if limit_usd is None:
        await tx.execute(delete(BudgetLimit).where(BudgetLimit.scope == scope, BudgetLimit.period == period))
        return
    shares = null() if thresholds is None else [str(share) for share in thresholds]
    values = {"limit_usd": limit_usd, "thresholds": shares, "set_by": by, "set_at": at}
    insert = insert_for(tx, BudgetLimit).values(scope=scope, period=period, **values)
    await tx.execute(insert.on_conflict_do_update(index_elements=["scope", "period"], set_=values))
