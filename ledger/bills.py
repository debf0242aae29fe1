"""Clouds' own bills beside what the ledger says of the same instances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import func, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.db import insert_for
from ledger.locks import lock_family
from ledger.models import BillLine, Instance, LedgerEntry, Session, Stray
from ledger.rollup import TOTAL, USED
from ledger.states import InstanceState

_CHUNK = 500


@dataclass(slots=True)
class Account:
    """An instance that is gone, what the ledger says it cost by component, and the lines of its bill."""

    row: Instance
    booked_usd: dict[str, Decimal] = field(default_factory=dict)
    lines: list[BillLine] = field(default_factory=list)


async def keep_lines(tx: AsyncSession, rows: Collection[dict[str, Any]]) -> None:
    """Store lines of a bill; a line that is there already is brought up to date."""
    adding = insert_for(tx, BillLine.__table__)
    changed = {name: getattr(adding.excluded, name) for name in ("amount_usd", "begins", "ends", "read_at")}
    there = ["cloud", "account", "line_id"]
    if rows:
        await tx.execute(adding.on_conflict_do_update(index_elements=there, set_=changed), list(rows))


async def accounts(tx: AsyncSession, cloud: str, account: str, since: datetime) -> list[Account]:
    """Every instance of a cloud's account that ended since then, with its bill, in a fixed number of queries."""
    gone = (Instance.cloud == cloud, Instance.account == account, Instance.state == InstanceState.GONE)
    query = select(Instance).where(*gone, Instance.ended_at >= since, Instance.ref.is_not(None)).order_by(Instance.id)
    return await _filled(tx, list(await tx.scalars(query)))


async def account_of(tx: AsyncSession, instance_id: str) -> Account:
    """One instance with its bill; nobody else corrects it until the transaction ends."""
    await lock_family(tx, Instance, instance_id)
    (found,) = await _filled(tx, [await tx.get_one(Instance, instance_id, populate_existing=True)])
    return found


async def used_by(
    tx: AsyncSession, session_ids: Collection[str]
) -> tuple[list[Instance], dict[str, dict[str | None, Decimal]]]:
    """The instances of those of these sessions that are over, and what each session has used by instance."""
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


async def corrected(tx: AsyncSession, instance_id: str) -> int:
    """How many corrections of an instance are booked."""
    mine = (LedgerEntry.instance_id == instance_id, LedgerEntry.kind == "true_up")
    return await tx.scalar(select(func.count()).where(*mine)) or 0


async def _filled(tx: AsyncSession, rows: list[Instance]) -> list[Account]:
    found = {row.id: Account(row) for row in rows}
    by_ref = {(row.cloud, row.account, str(row.ref)): found[row.id] for row in rows}
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        refs = [str(row.ref) for row in part]
        mine = (LedgerEntry.instance_id.in_([row.id for row in part]), LedgerEntry.kind.in_(USED))
        sums = select(LedgerEntry.instance_id, LedgerEntry.component, TOTAL).where(*mine)
        for instance_id, component, usd in await tx.execute(
            sums.group_by(LedgerEntry.instance_id, LedgerEntry.component)
        ):
            found[str(instance_id)].booked_usd[component] = usd
        for line in await tx.scalars(select(BillLine).where(BillLine.ref.in_(refs))):
            if (line.cloud, line.account, line.ref) in by_ref:
                by_ref[line.cloud, line.account, line.ref].lines.append(line)
        await _losses(tx, refs, by_ref)
    return list(found.values())


async def _losses(tx: AsyncSession, refs: list[str], by_ref: dict[tuple[str, str, str], Account]) -> None:
    """An instance that was taken for gone and came back is on one bill with the stray that it was then."""
    lost: defaultdict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
    query = select(Stray.cloud, Stray.account, Stray.ref, TOTAL).join(
        LedgerEntry, LedgerEntry.debit == literal("loss:").concat(Stray.id)
    )
    rows: Any = await tx.execute(query.where(Stray.ref.in_(refs)).group_by(Stray.cloud, Stray.account, Stray.ref))
    for cloud, account, ref, usd in rows:
        lost[cloud, account, ref] += usd
    for key, usd in lost.items():
        if key in by_ref:
            booked = by_ref[key].booked_usd
            booked["gpu"] = booked.get("gpu", Decimal(0)) + usd
