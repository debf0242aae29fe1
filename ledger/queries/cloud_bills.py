"""Compare the clouds' bills with the ledger's entries for the same instances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, and_, false, func, or_, select, union_all
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_family
from ledger.engine.db import insert_for, may_lock
from ledger.kernel.booked_component import BookedComponent
from ledger.kernel.entry_kind import USED, EntryKind
from ledger.kernel.states import GrantState, InstanceState, OrphanState
from ledger.models import BillLine, GrantRow, Instance, LedgerEntry, Orphan, Session
from ledger.queries.rollup import ORPHAN_ID, TOTAL

_CHUNK = 500
#: When an instance had ended for certain; an end that nobody saw is dated long before its proof.
_latest_at = func.coalesce(Instance.latest_end_at, Instance.ended_at)

#: A cloud and an account there.
Account = tuple[str, str]
#: Cloud, account, and the instance's id there.
Bill = tuple[str, str, str]


@dataclass(slots=True)
class BillSubject:
    """Hold one instance that is gone, of a session or an orphan, with its bill.

    `booked_usd` is what the ledger says it cost, by component; `holder` is the account that pays for it, `subject` the
    row whose journal reports it, `gpu_usd_h` its rate without storage. `most_usd_h` is the most that was approved for
    an hour of it, its disk included. It existed at most from `existed_from` until `existed_until`, or later as `row`,
    the instance, where no reply says when that ended; it is booked until `ended_at`.
    """

    id: str
    cloud: str
    account: str
    ref: str
    holder: str
    subject: str
    session_id: str | None
    request_id: str | None
    instance_id: str | None
    gpu_usd_h: Decimal
    most_usd_h: Decimal
    billing_from: datetime | None
    ended_at: datetime
    existed_from: datetime
    existed_until: datetime
    row: Instance | None = None
    booked_usd: dict[str, Decimal] = field(default_factory=dict)
    lines: list[BillLine] = field(default_factory=list)


def _of_row(row: Instance) -> BillSubject:
    ended_at = row.ended_at or row.created_at
    return BillSubject(
        id=row.id,
        cloud=row.cloud,
        account=row.account,
        ref=str(row.ref),
        holder=f"session:{row.session_id}",
        subject=row.session_id,
        session_id=row.session_id,
        request_id=row.request_id,
        instance_id=row.id,
        gpu_usd_h=max(row.price_usd_h - row.storage_usd_h, Decimal(0)),
        most_usd_h=row.price_usd_h,
        billing_from=row.billing_from,
        ended_at=ended_at,
        existed_from=row.sent_at or row.created_at,
        existed_until=ended_at,
        row=row,
    )


def _of_orphan(orphan: Orphan) -> BillSubject:
    ended_at = orphan.ended_at or orphan.last_seen_at
    return BillSubject(
        id=orphan.id,
        cloud=orphan.cloud,
        account=orphan.account,
        ref=orphan.ref,
        holder=f"loss:{orphan.id}",
        subject=orphan.id,
        session_id=None,
        request_id=None,
        instance_id=orphan.instance_id,
        gpu_usd_h=orphan.price_usd_h,
        most_usd_h=orphan.price_usd_h,
        billing_from=orphan.billing_from,
        ended_at=ended_at,
        existed_from=min(orphan.billing_from or orphan.first_seen_at, orphan.first_seen_at),
        existed_until=ended_at,
    )


async def keep_lines(tx: AsyncSession, rows: Collection[dict[str, Any]]) -> None:
    """Store lines of a bill; update a line that is there already, unless it covers more than the new one.

    A cloud may cut a line to the time that was asked about, so one that begins later is only a part.
    """
    adding = insert_for(tx, BillLine.__table__)
    changed = {name: getattr(adding.excluded, name) for name in ("amount_usd", "begins", "ends", "read_at")}
    there = ["cloud", "account", "line_id"]
    whole = adding.excluded.begins <= BillLine.begins
    if rows:
        storing = adding.on_conflict_do_update(index_elements=there, set_=changed, where=whole)
        await tx.execute(storing, list(rows))


async def accounts(tx: AsyncSession, of: Collection[Account], since: datetime) -> list[BillSubject]:
    """List every instance of these accounts that ended since then, with its bill, in a fixed number of queries."""
    return (await accounts_and_overdue(tx, of, since))[0]


async def accounts_and_overdue(
    tx: AsyncSession, of: Collection[Account], since: datetime
) -> tuple[list[BillSubject], list[str]]:
    """Return the same, and every instance that ended before then and that no bill has settled, in as many queries."""
    late = and_(Instance.unsettled_usd.is_not(None), _latest_at < since)
    query = select(Instance).where(or_(and_(_of(Instance, of), *_gone(since)), late)).order_by(Instance.id)
    rows = list(await tx.scalars(query))
    overdue = [row.id for row in rows if (row.latest_end_at or row.ended_at or since) < since]
    found = await _filled(tx, [row for row in rows if row.id not in overdue])
    over = select(Orphan).where(_of(Orphan, of), *_gone_orphans(since)).order_by(Orphan.id)
    return found + await _filled_orphans(tx, list(await tx.scalars(over))), overdue


def _of(model: type[Instance | Orphan], of: Collection[Account]) -> ColumnElement[bool]:
    return or_(false(), *(and_(model.cloud == cloud, model.account == account) for cloud, account in sorted(of)))


def _gone(since: datetime) -> tuple[ColumnElement[bool], ...]:
    return (Instance.state == InstanceState.GONE, _latest_at >= since, Instance.ref.is_not(None))


def _gone_orphans(since: datetime) -> tuple[ColumnElement[bool], ...]:
    return (Orphan.state == OrphanState.GONE, Orphan.ended_at >= since)


async def earliest(tx: AsyncSession, of: Collection[Account], since: datetime) -> dict[Account, datetime]:
    """Return when the first of those that ended since then began, by account; none for one where none ended."""
    began = func.coalesce(Instance.sent_at, Instance.created_at).label("at")
    rows = select(Instance.cloud, Instance.account, began).where(_of(Instance, of), *_gone(since))
    first = func.coalesce(Orphan.billing_from, Orphan.first_seen_at)
    both = union_all(
        rows, select(Orphan.cloud, Orphan.account, first).where(_of(Orphan, of), *_gone_orphans(since))
    ).subquery()
    query = select(both.c.cloud, both.c.account, func.min(both.c.at)).group_by(both.c.cloud, both.c.account)
    return {(cloud, account): at for cloud, account, at in await tx.execute(query)}


async def subject_of(tx: AsyncSession, row_id: str) -> BillSubject | None:
    """Return an ended instance or orphan by its id, with its bill; None where there is none."""
    row = await tx.get(Instance, row_id)
    if row is not None:
        over = row.state is InstanceState.GONE and row.ref is not None
        return (await _filled(tx, [row]))[0] if over else None
    orphan = await tx.get(Orphan, row_id)
    over = orphan is not None and orphan.state is OrphanState.GONE
    return next(iter(await _filled_orphans(tx, [orphan])), None) if orphan is not None and over else None


async def account_of(tx: AsyncSession, account: BillSubject) -> BillSubject | None:
    """Reload an instance with its bill, and lock it against other corrections until the transaction ends.

    None: another row carries its bill now.
    """
    if account.session_id is None:
        await lock_family(tx, Orphan, account.id)
        orphan = await tx.get_one(Orphan, account.id, populate_existing=True, with_for_update=may_lock(tx))
        return next(iter(await _filled_orphans(tx, [orphan])), None)
    await lock_family(tx, Instance, account.id)
    (found,) = await _filled(tx, [await tx.get_one(Instance, account.id, populate_existing=True)])
    return found


async def used_by(
    tx: AsyncSession, session_ids: Collection[str]
) -> tuple[list[Instance], dict[str, dict[str | None, Decimal]]]:
    """Return the instances of the ended sessions among these, and what each session has used by instance."""
    used = defaultdict[str, dict[str | None, Decimal]](dict)
    rows: list[Instance] = []
    if session_ids:
        query = select(Instance).join(Session, Session.id == Instance.session_id)
        over = (Session.id.in_(session_ids), Session.ended_at.is_not(None))
        rows = list(await tx.scalars(query.where(*over).order_by(Instance.id)))
    if rows:
        mine = (LedgerEntry.session_id.in_({row.session_id for row in rows}), LedgerEntry.kind.in_(USED))
        sums = select(LedgerEntry.session_id, LedgerEntry.instance_id, TOTAL).where(*mine)
        for session_id, instance_id, usd in await tx.execute(
            sums.group_by(LedgerEntry.session_id, LedgerEntry.instance_id)
        ):
            used[str(session_id)][instance_id] = usd
    return rows, used


async def corrected(tx: AsyncSession, account: BillSubject) -> int:
    """Count the booked corrections of an instance."""
    mine: tuple[ColumnElement[bool], ...] = (LedgerEntry.key.startswith(f"{account.id}/true-up/"),)
    if account.session_id is not None:  # Steps of a rate are counted too: so was the number of each correction.
        session = LedgerEntry.session_id == account.session_id
        mine = (session, LedgerEntry.instance_id == account.id, LedgerEntry.kind == EntryKind.TRUE_UP)
    return await tx.scalar(select(func.count()).where(*mine)) or 0


async def _filled(tx: AsyncSession, rows: list[Instance]) -> list[BillSubject]:
    found = {row.id: _of_row(row) for row in rows}
    by_ref = {(one.cloud, one.account, one.ref): one for one in found.values()}
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        mine = (LedgerEntry.instance_id.in_([row.id for row in part]), LedgerEntry.kind.in_(USED))
        sums = select(LedgerEntry.instance_id, LedgerEntry.component, TOTAL).where(*mine)
        for instance_id, component, usd in await tx.execute(
            sums.group_by(LedgerEntry.instance_id, LedgerEntry.component)
        ):
            found[str(instance_id)].booked_usd[component] = usd
        caps: Any = await tx.execute(
            select(Instance.id, func.max(GrantRow.price_cap_usd_h))
            .join(GrantRow, GrantRow.session_id == Instance.session_id)
            .where(Instance.id.in_([row.id for row in part]), GrantRow.state != GrantState.VOID)
            .group_by(Instance.id)
        )
        for instance_id, cap_usd_h in caps:
            found[instance_id].most_usd_h = max(found[instance_id].most_usd_h, cap_usd_h)
        refs = [str(row.ref) for row in part]
        await _add_lines(tx, refs, by_ref)
        await _add_orphaned_time(tx, refs, by_ref)
        await _add_losses(tx, refs, by_ref)
    return list(found.values())


async def _filled_orphans(tx: AsyncSession, orphans: list[Orphan]) -> list[BillSubject]:
    """Fill in orphans, without those that an instance of a session or an open orphan stands for.

    Such an instance is on one bill with the orphan that it was before. Of several closed orphans that were one
    instance, the last one stands for all.
    """
    by_ref = {(one.cloud, one.account, one.ref): _of_orphan(one) for one in orphans}
    for start in range(0, len(orphans), _CHUNK):
        refs = [orphan.ref for orphan in orphans[start : start + _CHUNK]]
        same = select(Instance.cloud, Instance.account, Instance.ref).where(Instance.ref.in_(refs))
        rows: Any = await tx.execute(same)
        again = select(Orphan.cloud, Orphan.account, Orphan.ref).where(Orphan.ref.in_(refs))
        still: Any = await tx.execute(again.where(Orphan.state != OrphanState.GONE))
        for cloud, account, ref in [*rows, *still]:
            by_ref.pop((cloud, account, ref), None)
        await _add_lines(tx, refs, by_ref)
        await _add_losses(tx, refs, by_ref)
    return list(by_ref.values())


async def _add_lines(tx: AsyncSession, refs: list[str], by_ref: dict[Bill, BillSubject]) -> None:
    for line in await tx.scalars(select(BillLine).where(BillLine.ref.in_(refs))):
        if (line.cloud, line.account, line.ref) in by_ref:
            by_ref[line.cloud, line.account, line.ref].lines.append(line)


async def _add_orphaned_time(tx: AsyncSession, refs: list[str], by_ref: dict[Bill, BillSubject]) -> None:
    """Add the time in which the same instance was an orphan: before it was adopted, or after it counted as gone."""
    for orphan in await tx.scalars(select(Orphan).where(Orphan.ref.in_(refs))):
        one = by_ref.get((orphan.cloud, orphan.account, orphan.ref))
        if one is not None:
            then = _of_orphan(orphan)
            one.existed_from = min(one.existed_from, then.existed_from)
            one.existed_until = max(one.existed_until, then.existed_until)


async def _add_losses(tx: AsyncSession, refs: list[str], by_ref: dict[Bill, BillSubject]) -> None:
    """Add what orphans cost.

    An instance that was taken for gone and came back as an orphan is on one bill with its earlier row.
    """
    query = (
        select(Orphan.cloud, Orphan.account, Orphan.ref, LedgerEntry.component, TOTAL)
        .join(LedgerEntry, and_(LedgerEntry.kind == EntryKind.LOSS, Orphan.id == ORPHAN_ID))
        .where(Orphan.ref.in_(refs))
        .group_by(Orphan.cloud, Orphan.account, Orphan.ref, LedgerEntry.component)
    )
    rows: Any = await tx.execute(query)
    for cloud, account, ref, component, usd in rows:
        one = by_ref.get((cloud, account, ref))
        if one is not None:  # An orphan's running cost is booked in one piece.
            name = BookedComponent.GPU if component == BookedComponent.ORPHAN else component
            one.booked_usd[name] = one.booked_usd.get(name, Decimal(0)) + usd
