"""Compare the clouds' bills with the ledger's entries for the same instances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_family
from ledger.engine.db import insert_for, may_lock
from ledger.kernel.entry_kind import USED, EntryKind
from ledger.kernel.states import InstanceState, OrphanState
from ledger.models import BillLine, Instance, LedgerEntry, Orphan, Session
from ledger.queries.rollup import ORPHAN_ID, TOTAL

_CHUNK = 500

#: Cloud, account, and the instance's id there.
Bill = tuple[str, str, str]


@dataclass(slots=True)
class BillSubject:
    """Hold one instance that is gone, of a session or an orphan, with its bill.

    `booked_usd` is what the ledger says it cost, by component; `holder` is the account that pays for it, `subject` the
    row whose journal reports it, `gpu_usd_h` its rate without storage.
    """

    id: str
    cloud: str
    account: str
    ref: str
    holder: str
    subject: str
    session_id: str | None
    instance_id: str | None
    gpu_usd_h: Decimal
    billing_from: datetime | None
    ended_at: datetime
    booked_usd: dict[str, Decimal] = field(default_factory=dict)
    lines: list[BillLine] = field(default_factory=list)


def _of_row(row: Instance) -> BillSubject:
    return BillSubject(
        id=row.id,
        cloud=row.cloud,
        account=row.account,
        ref=str(row.ref),
        holder=f"session:{row.session_id}",
        subject=row.session_id,
        session_id=row.session_id,
        instance_id=row.id,
        gpu_usd_h=max(row.price_usd_h - row.storage_usd_h, Decimal(0)),
        billing_from=row.billing_from,
        ended_at=row.ended_at or row.created_at,
    )


def _of_orphan(orphan: Orphan) -> BillSubject:
    return BillSubject(
        id=orphan.id,
        cloud=orphan.cloud,
        account=orphan.account,
        ref=orphan.ref,
        holder=f"loss:{orphan.id}",
        subject=orphan.id,
        session_id=None,
        instance_id=orphan.instance_id,
        gpu_usd_h=orphan.price_usd_h,
        billing_from=orphan.billing_from,
        ended_at=orphan.ended_at or orphan.last_seen_at,
    )


async def keep_lines(tx: AsyncSession, rows: Collection[dict[str, Any]]) -> None:
    """Store lines of a bill; update a line that is there already."""
    adding = insert_for(tx, BillLine.__table__)
    changed = {name: getattr(adding.excluded, name) for name in ("amount_usd", "begins", "ends", "read_at")}
    there = ["cloud", "account", "line_id"]
    if rows:
        await tx.execute(adding.on_conflict_do_update(index_elements=there, set_=changed), list(rows))


async def accounts(tx: AsyncSession, cloud: str, account: str, since: datetime) -> list[BillSubject]:
    """List every instance of a cloud's account that ended since then, with its bill, in a fixed number of queries."""
    gone = (Instance.cloud == cloud, Instance.account == account, Instance.state == InstanceState.GONE)
    query = select(Instance).where(*gone, Instance.ended_at >= since, Instance.ref.is_not(None)).order_by(Instance.id)
    found = await _filled(tx, list(await tx.scalars(query)))
    over = (
        Orphan.cloud == cloud,
        Orphan.account == account,
        Orphan.state == OrphanState.GONE,
        Orphan.ended_at >= since,
    )
    return found + await _filled_orphans(tx, list(await tx.scalars(select(Orphan).where(*over).order_by(Orphan.id))))


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
    query = select(Instance).join(Session, Session.id == Instance.session_id)
    over = (Session.id.in_(session_ids), Session.ended_at.is_not(None))
    rows = list(await tx.scalars(query.where(*over).order_by(Instance.id))) if session_ids else []
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
        refs = [str(row.ref) for row in part]
        await _add_lines(tx, refs, by_ref)
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
            name = "gpu" if component == "stray" else component
            one.booked_usd[name] = one.booked_usd.get(name, Decimal(0)) + usd
