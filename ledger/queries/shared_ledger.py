"""Read and write other tools' costs, export ours in the shared format, and read the hash chain."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_requester
from ledger.engine.db import insert_for
from ledger.kernel.booked_component import BookedComponent
from ledger.kernel.charge import BookedCharge
from ledger.kernel.entry_kind import SPENT, USED, EntryKind
from ledger.kernel.states import OPEN_INSTANCE, RollupTier
from ledger.models import EntryHash, ExternalCost, Instance, LedgerEntry, Orphan, Rollup, Session, Unrolled
from ledger.queries.access import Whose
from ledger.queries.rollup import AMOUNT, FACETS, HASHED_COLUMNS, ORPHAN_ID, TOTAL, raw
from ledger.queries.spend import Purse

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class OwnEntry:
    """Describe one entry of ours for the shared file. `id` is the same at every export."""

    id: str
    provider: str
    action: str
    amount_usd: Decimal
    at: datetime
    notes: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Hold the sums that several parts of the ledger give for the same money."""

    entries: int
    hashed: int
    waiting: int
    raw_usd: Decimal
    rolled_usd: Decimal
    waiting_usd: Decimal
    accounts_usd: Decimal


async def add_externals(tx: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Store other tools' costs; return the keys of the new ones, however they arrived."""
    insert = insert_for(tx, ExternalCost.__table__).on_conflict_do_nothing()
    return (
        set((await tx.execute(insert.returning(ExternalCost.__table__.c.key), list(rows))).scalars()) if rows else set()
    )


async def externals_known(tx: AsyncSession, keys: Sequence[str]) -> dict[str, str]:
    """Return the entry of each of these external costs that is booked already."""
    found: dict[str, str] = {}
    for start in range(0, len(keys), 500):
        known = select(ExternalCost.key, ExternalCost.entry_id).where(ExternalCost.key.in_(keys[start : start + 500]))
        rows: Any = await tx.execute(known)
        found.update(map(tuple, rows))
    return found


async def booked_of_tools(tx: AsyncSession, skills: Collection[str], owner: str) -> dict[str, Decimal]:
    """Return the dollars that one caller has appended for each of these tools, less refunds.

    Nobody else appends there until `tx` ends.
    """
    for skill in sorted(skills):  # In one order, or two callers for the same tools would wait for each other.
        await lock_requester(tx, f"external/{owner}/{skill}")
    mine = (ExternalCost.skill.in_(sorted(skills)), ExternalCost.owner == owner)
    rows: Any = await tx.execute(
        select(ExternalCost.skill, func.sum(ExternalCost.amount_usd)).where(*mine).group_by(ExternalCost.skill)
    )
    return dict.fromkeys(skills, Decimal(0)) | dict(map(tuple, rows))


async def entries_of(tx: AsyncSession, keys: Collection[str]) -> dict[str, str]:
    """Return the ids of the entries with these keys."""
    rows: Any = await tx.execute(select(LedgerEntry.key, LedgerEntry.id).where(LedgerEntry.key.in_(list(keys))))
    return dict(map(tuple, rows))


async def others_entries(tx: AsyncSession, since: datetime | None) -> list[ExternalCost]:
    """List other tools' costs since then, however they arrived, in the order of their time."""
    query = select(ExternalCost).order_by(ExternalCost.at, ExternalCost.key)
    return list(await tx.scalars(query if since is None else query.where(ExternalCost.at >= since)))


async def own_entries(tx: AsyncSession, since: datetime | None) -> list[OwnEntry]:
    """List our entries for the shared file.

    One for each creation, each instance-hour and each end, one for each correction, and the costs of orphans. Left out
    are instances that ended before `since`.
    """
    query = select(Instance, Session.gpu, Session.gpu_count).join(Session, Session.id == Instance.session_id)
    query = query.where(Instance.live_at.is_not(None)).order_by(Instance.id)
    if since is not None:
        query = query.where((Instance.ended_at.is_(None)) | (Instance.ended_at >= since))
    found: list[OwnEntry] = []
    rows = (await tx.execute(query)).all()
    booked: defaultdict[str, list[LedgerEntry]] = defaultdict(list)
    for start in range(0, len(rows), 500):
        ids = [row.id for row, _, _ in rows[start : start + 500]]
        mine = select(LedgerEntry).where(LedgerEntry.instance_id.in_(ids), LedgerEntry.kind.in_(USED))
        for entry in await tx.scalars(mine.order_by(LedgerEntry.at, LedgerEntry.id)):
            booked[str(entry.instance_id)].append(entry)
    for row, gpu, count in rows:
        found += _of_instance(row, f"{count}x {gpu}", booked[row.id])
    return [*found, *await _of_orphans(tx, since)]


async def _of_orphans(tx: AsyncSession, since: datetime | None) -> list[OwnEntry]:
    """List the costs of orphans, which belong to no session: each entry as it is booked."""
    query = select(LedgerEntry, AMOUNT, Orphan.cloud).join(Orphan, Orphan.id == ORPHAN_ID)
    query = query.where(LedgerEntry.kind == EntryKind.LOSS).order_by(LedgerEntry.at, LedgerEntry.id)
    if since is not None:
        query = query.where(LedgerEntry.at >= since)
    rows: Any = await tx.execute(query)
    return [OwnEntry(one.id, cloud, str(one.kind), usd, one.at, one.note or "no session") for one, usd, cloud in rows]


async def charges(
    tx: AsyncSession,
    purse: Purse,
    since: datetime,
    until: datetime,
    after: BookedCharge | None = None,
    limit: int = 1000,
) -> list[BookedCharge]:
    """List what was spent in (since, until], the oldest first; `after` is the last one of the page before.

    An entry's time is the end of what it books, so an hour that ends at midnight belongs to the day before.
    """
    query = raw(
        LedgerEntry,
        AMOUNT,
        *FACETS.values(),
        func.coalesce(Session.gpu_count, 1),
        func.coalesce(Instance.account, Orphan.account, ""),
        func.coalesce(Instance.ref, Orphan.ref, ""),
        func.coalesce(Instance.name, Orphan.label, ""),
        Instance.offer,
        func.coalesce(Instance.price_usd_h, Orphan.price_usd_h, 0),
        func.coalesce(Instance.storage_usd_h, 0),
    )
    query = query.where(LedgerEntry.kind.in_(SPENT), LedgerEntry.at > since, LedgerEntry.at <= until)
    query = query.where(*purse.on_entries()).order_by(LedgerEntry.at, LedgerEntry.id).limit(limit)
    if after is not None:
        later = and_(LedgerEntry.at == after.at, LedgerEntry.id > after.id)
        query = query.where(or_(LedgerEntry.at > after.at, later))
    rows: Any = await tx.execute(query)
    return [_charge(*row) for row in rows]


async def unsettled_charges(tx: AsyncSession, purse: Purse, since: datetime, until: datetime) -> list[BookedCharge]:
    """List what instances may have cost in (since, until] beyond their likely end, by the day of their latest one."""
    query = (
        select(Instance, Session)
        .join(Session, Session.id == Instance.session_id)
        .where(Instance.unsettled_usd.is_not(None), Instance.latest_end_at > since, Instance.latest_end_at <= until)
        .where(*purse.conditions())
        .order_by(Instance.latest_end_at, Instance.id)
    )
    return [_unsettled(row, session) for row, session in await tx.execute(query)]


def _unsettled(row: Instance, session: Session) -> BookedCharge:
    at, key = row.latest_end_at or row.created_at, f"{row.id}/unsettled"
    note = "may have run until then; its bill settles it"
    entry = LedgerEntry(id=key, key=key, kind=EntryKind.TRUE_UP, at=at, component=BookedComponent.GPU, note=note)
    entry.session_id = row.session_id
    facts = (session.owner, row.cloud, session.gpu or "", session.label or "", "", session.gpu_count, row.account)
    prices = (row.price_usd_h, row.storage_usd_h)
    return _charge(entry, row.unsettled_usd or Decimal(0), *facts, str(row.ref or ""), row.name, row.offer, *prices)


def _charge(entry: LedgerEntry, amount_usd: Decimal, *facts: Any) -> BookedCharge:
    owner, cloud, gpu, label, tool, count, account, ref, name, offer, price, storage = facts
    offer = offer or {}
    return BookedCharge(
        entry.id,
        entry.key,
        entry.kind,
        amount_usd,
        entry.at,
        entry.component,
        entry.note,
        entry.session_id or "",
        owner,
        cloud,
        gpu,
        label,
        tool,
        count,
        account,
        ref,
        name,
        str(offer.get("region", "")),
        bool(offer.get("spot", False)),
        price,
        storage,
    )


def _of_instance(row: Instance, what: str, entries: list[LedgerEntry]) -> list[OwnEntry]:
    began = row.sent_at or row.created_at
    made = OwnEntry(f"{row.id}/created", row.cloud, "instance_created", Decimal(0), began, what)
    hours: defaultdict[int, Decimal] = defaultdict(Decimal)
    rest = Decimal(0)
    others: list[OwnEntry] = []
    for entry in entries:
        signed = -entry.amount_usd if entry.debit.startswith("payable:") else entry.amount_usd
        if entry.kind is not EntryKind.ACCRUE:
            action = "correction" if entry.kind is EntryKind.TRUE_UP else str(entry.kind)
            others.append(OwnEntry(entry.id, row.cloud, action, signed, entry.at, entry.note or what))
        elif entry.key.endswith("/final") and "/disk/" not in entry.key:
            rest += signed
        else:
            hours[_hour_of(entry, began)] += signed
    found = [made]
    for hour in range(max(hours, default=-1) + 1):  # Also those without a cost, which an earlier export may have.
        ends, name = began + (hour + 1) * HOUR, f"{row.id}/h{hour}"
        found.append(OwnEntry(name, row.cloud, "instance_hour", hours[hour], ends, what))
    if row.ended_at is not None:
        found.append(OwnEntry(f"{row.id}/terminated", row.cloud, "instance_terminated", rest, row.ended_at, what))
    return [*found, *others]


def _hour_of(entry: LedgerEntry, began: datetime) -> int:
    """Return in which hour since its creation an instance used what an accrual books.

    GPU, storage and a retained disk count their hours from different times, and a stop moves those of the GPU.
    """
    is_hour = re.fullmatch("h[0-9]+", entry.key.rpartition("/")[2]) is not None
    used_at = entry.at - (HOUR if is_hour else timedelta(microseconds=1))
    return max((used_at - began) // HOUR, 0)


async def live_instances(tx: AsyncSession, whose: Whose | None) -> list[tuple[Instance, Session]]:
    """List every instance that may exist at a cloud, of everybody where `whose` is None."""
    query = select(Instance, Session).join(Session, Session.id == Instance.session_id)
    query = query.where(Instance.state.in_(OPEN_INSTANCE)).order_by(Instance.id)
    if whose is not None:
        query = query.where(whose.where(Session.owner))
    return [(row, session) for row, session in await tx.execute(query)]


async def chain(tx: AsyncSession, batch: int = 5_000) -> AsyncIterator[tuple[int, str, Mapping[str, Any]]]:
    """Yield every hash in order with its number and the columns of its entry."""
    last, names = 0, [column.key for column in HASHED_COLUMNS]
    while True:
        rows: Any = (
            await tx.execute(
                select(EntryHash.number, EntryHash.hash, *HASHED_COLUMNS)
                .join(LedgerEntry, LedgerEntry.id == EntryHash.entry_id)
                .where(EntryHash.number > last)
                .order_by(EntryHash.number)
                .limit(batch)
            )
        ).all()
        for number, sealed, *values in rows:
            yield number, sealed, dict(zip(names, values, strict=True))
        if len(rows) < batch:
            return
        last = rows[-1][0]


async def totals(tx: AsyncSession) -> Totals:
    """Return the sums that must agree."""
    waits = LedgerEntry.id.in_(select(Unrolled.entry_id))
    debits = await _by(tx, LedgerEntry.debit)
    given = await _by(tx, LedgerEntry.credit)
    nothing = Decimal(0)
    balances = {name: debits.get(name, nothing) - given.get(name, nothing) for name in debits.keys() | given.keys()}
    return Totals(
        entries=await tx.scalar(select(func.count()).select_from(LedgerEntry)) or 0,
        hashed=await tx.scalar(select(func.count()).select_from(EntryHash)) or 0,
        waiting=await tx.scalar(select(func.count()).select_from(Unrolled)) or 0,
        raw_usd=await tx.scalar(select(TOTAL).where(LedgerEntry.kind.in_(SPENT))) or nothing,
        rolled_usd=await tx.scalar(select(func.sum(Rollup.amount_usd)).where(Rollup.tier == RollupTier.MONTH))
        or nothing,
        waiting_usd=await tx.scalar(select(TOTAL).where(LedgerEntry.kind.in_(SPENT), waits)) or nothing,
        accounts_usd=sum(balances.values(), nothing),
    )


async def _by(tx: AsyncSession, side: Any) -> dict[str, Decimal]:
    rows: Any = await tx.execute(select(side, func.sum(LedgerEntry.amount_usd)).group_by(side))
    return dict(map(tuple, rows))
