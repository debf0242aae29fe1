"""Disks that are kept while their machine stands still: rows that people see, what they cost, word before their end.

A stop that somebody ordered keeps a disk until the approved end, whose own warnings speak of it; the checkpoint gate
keeps one as long as that was approved. More time and an earlier end are asked of the session, as for everything else.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.services.billing.metering import disk_accruals, rule_of
from bot.services.checkpoints import hold
from bot.services.notifications.paging import alone
from bot.services.runtime.context import Context
from ledger.core.events import record
from ledger.core.writes import Tx, book_all
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.kernel.states import InstanceState
from ledger.models import Disk, Instance, Session
from ledger.queries.retained_disks import add_disk, change_disk, open_disks, stopped_instances

#: How often it is looked which there are.
LOOK_S = 30.0
#: The owner is told so long before a disk is deleted, and at the latest when half of its time is over.
WARN = timedelta(hours=24)


async def disks_due(ctx: Context) -> int:
    """Bring the rows up to date with the machines, book what they cost, and warn of their end. Returns what changed."""
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        still = {row.id: (row, session) for row, session in await stopped_instances(tx)}
        known = {disk.instance_id: disk for disk in await open_disks(tx)}
    changed = 0
    for instance_id in sorted(still.keys() | known.keys()):
        found, disk = still.get(instance_id), known.get(instance_id)
        if found is None and disk is not None:
            step = _over(ctx, disk, now)
        elif found is not None and (disk is None or _has_news(disk, *found, now)):
            step = _kept(ctx, disk, *found, now)
        else:
            continue
        changed += await alone(ctx, instance_id, "the disk", step, 0)
    if changed:
        ctx.hints.outbox.set()
    return changed


def ends_at(row: Instance, session: Session) -> datetime | None:
    """When the disk goes with its machine, unless somebody answers."""
    return row.gate_until if row.state is InstanceState.TERMINATING else session.deadline


def _warns_at(disk: Disk) -> datetime:
    return disk.until - min(WARN, (disk.until - disk.since) / 2)


def _has_news(disk: Disk, row: Instance, session: Session, now: datetime) -> bool:
    moved = ends_at(row, session) not in (None, disk.until)
    warns = row.state is InstanceState.TERMINATING and disk.warned_at is None and now >= _warns_at(disk)
    return moved or warns or now - disk.since >= timedelta(hours=disk.booked_h + 1)


async def _kept(ctx: Context, disk: Disk | None, row: Instance, session: Session, now: datetime) -> int:
    until = ends_at(row, session)
    if until is None:
        return 0
    async with ctx.db.write() as tx:
        if disk is None:
            return await _begin(tx, row, session, until, now)
        booked_h = int((now - disk.since) / timedelta(hours=1))
        await book_all(tx, disk_accruals(row, disk, now, rule_of(ctx, row), final=False))
        warned_at = disk.warned_at if disk.until == until else None  # Another end is announced anew.
        disk.until = until
        if row.state is InstanceState.TERMINATING and warned_at is None and now >= _warns_at(disk):
            await hold.notify_owner(ctx, tx, row, hold.DISK, now)
            warned_at = now
        return int(await change_disk(tx, disk.id, until=until, booked_h=booked_h, warned_at=warned_at))


async def _begin(tx: Tx, row: Instance, session: Session, until: datetime, now: datetime) -> int:
    disk_id, rate = new_id("dsk", now), hold.disk_rate(row)
    new = await add_disk(
        tx,
        id=disk_id,
        session_id=session.id,
        instance_id=row.id,
        owner=session.owner,
        cloud=row.cloud,
        price_usd_h=rate,
        since=min(row.billing_until or now, now),
        until=until,
        booked_h=0,
    )
    if new:
        said = f"The disk of {row.name} is kept until {until:%Y-%m-%d %H:%M} UTC."
        record(
            tx,
            at=now,
            actor=SYSTEM,
            subject=session.id,
            kind=EventKind.DISK_KEPT,
            reason=said,
            data={"disk_id": disk_id},
        )
    return int(new)


async def _over(ctx: Context, disk: Disk, now: datetime) -> int:
    """Its machine runs again, or goes: nothing is kept apart from it any more."""
    async with ctx.db.write() as tx:
        row = await tx.get_one(Instance, disk.instance_id)
        if row.state is InstanceState.TERMINATING and row.terminate_acked_at is None:
            return 0  # Its end is ordered and not taken: the gate may keep it, and it is paid until the cloud takes it.
        over_at = row.live_at if row.state is InstanceState.LIVE else row.terminate_acked_at or row.ended_at
        ended_at = max(min(over_at or now, now), disk.since)
        if not await change_disk(tx, disk.id, ended_at=ended_at):
            return 0
        await book_all(tx, disk_accruals(row, disk, ended_at, rule_of(ctx, row), final=True))
        how = "is in use again" if row.state is InstanceState.LIVE else "goes with its machine"
        said = f"The disk of {row.name} {how}."
        record(tx, at=now, actor=SYSTEM, subject=disk.session_id, kind=EventKind.DISK_OVER, reason=said)
    return 1
