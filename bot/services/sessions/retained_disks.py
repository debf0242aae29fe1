"""Record the disks that are retained while their instance is stopped, book their cost, and warn before their deletion.

A stop that somebody ordered retains a disk until the approved end, whose own warnings mention it. The checkpoint check
retains one as long as that was approved. An extension or an earlier end is ordered on the session, as always.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.services.billing.metering import disk_accruals, rule_of
from bot.services.checkpoints import hold
from bot.services.notifications.paging import alone
from bot.services.runtime.clock_guard import clock_problem, require_trusted
from bot.services.runtime.context import Context
from ledger.core import Tx, book_all, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.kernel.states import InstanceState
from ledger.models import Disk, Instance, Session
from ledger.queries.retained_disks import add_disk, change_disk, open_disks, stopped_instances

#: Seconds between two passes.
LOOK_S = 30.0
#: The owner is warned this long before a disk is deleted, and at the latest when half of its time has passed.
WARN = timedelta(hours=24)
#: The end of a preserved disk is computed from rounded amounts, so a smaller difference is none.
MOVED = timedelta(minutes=5)


async def disks_due(ctx: Context) -> int:
    """Match the disk rows with the instances, book what they cost, and warn of their end. Return how many changed."""
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        stopped = {row.id: (row, session) for row, session in await stopped_instances(tx)}
        known = {disk.instance_id: disk for disk in await open_disks(tx)}
    changed = 0
    for instance_id in sorted(stopped.keys() | known.keys()):
        found, disk = stopped.get(instance_id), known.get(instance_id)
        if found is None and disk is not None:
            step = _close(ctx, disk, now)
        elif found is not None and (disk is None or _has_news(disk, *found, now)):
            step = _update(ctx, disk, *found, now)
        else:
            continue
        changed += await alone(ctx, instance_id, "the disk", step, 0)
    if changed:
        ctx.hints.outbox.set()
    return changed


def ends_at(row: Instance, session: Session) -> datetime | None:
    """Return when the disk is deleted with its instance, unless somebody acts or its owner asked to preserve it."""
    return row.checkpoint_until if row.state is InstanceState.TERMINATING else session.deadline


async def _end_of(
    ctx: Context, tx: Tx, disk: Disk | None, row: Instance, session: Session, now: datetime
) -> datetime | None:
    """Return when the disk is deleted. That of a preserved disk moves only by more than its hourly cost explains."""
    if not _is_preserved(row, session):
        return ends_at(row, session)
    until = await hold.preserved_until(ctx, tx, row, session, now)
    is_same = disk is not None and until is not None and abs(disk.until - until) < MOVED
    return disk.until if disk is not None and is_same else until


def _is_preserved(row: Instance, session: Session) -> bool:
    return bool(session.preserve) and row.state is InstanceState.STOPPED


def _warns_at(disk: Disk) -> datetime:
    return disk.until - min(WARN, (disk.until - disk.since) / 2)


def _has_news(disk: Disk, row: Instance, session: Session, now: datetime) -> bool:
    moved = ends_at(row, session) not in (None, disk.until)
    if _is_preserved(row, session):  # It outlives the approved end, and is looked at once an hour.
        moved = session.deadline is not None and not session.deadline <= disk.until <= session.deadline + hold.LONGEST
    warns = row.state is InstanceState.TERMINATING and disk.warned_at is None and now >= _warns_at(disk)
    return moved or warns or now - disk.since >= timedelta(hours=disk.booked_h + 1)


async def _update(ctx: Context, disk: Disk | None, row: Instance, session: Session, now: datetime) -> int:
    async with ctx.db.write() as tx:
        until = await _end_of(ctx, tx, disk, row, session, now)
        if until is None:
            return 0
        if disk is None:
            return await _begin(tx, row, session, until, now)
        booked_h = disk.booked_h
        if not clock_problem(ctx.clock):
            booked_h = int((now - disk.since) / timedelta(hours=1))
            await book_all(tx, disk_accruals(row, disk, now, rule_of(ctx, row), final=False))
        warned_at = disk.warned_at if disk.until == until else None  # Another end has another warning.
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
        said = f"The disk of {row.name} stays until {until:%Y-%m-%d %H:%M} UTC."
        record(tx, now, SYSTEM, session.id, EventKind.DISK_KEPT, reason=said, data={"disk_id": disk_id})
    return int(new)


async def change_owner(ctx: Context, tx: Tx, disk: Disk, now: datetime) -> None:
    """Book what a disk has cost until its session gets another owner; from then on it is counted anew."""
    require_trusted(ctx.clock, "The change of owner")
    row = await tx.get_one(Instance, disk.instance_id)
    await book_all(tx, disk_accruals(row, disk, now, rule_of(ctx, row), final=True))
    await change_disk(tx, disk.id, since=max(now, disk.since), booked_h=0)


async def _close(ctx: Context, disk: Disk, now: datetime) -> int:
    """Close the row of a disk whose instance runs again or was terminated."""
    if clock_problem(ctx.clock):
        return 0  # Its last cost is booked when the clock is trusted again.
    async with ctx.db.write() as tx:
        row = await tx.get_one(Instance, disk.instance_id)
        if row.state is InstanceState.TERMINATING and row.terminate_acked_at is None:
            # The termination is not accepted yet: the checkpoint check may retain the disk, which costs until then.
            return 0
        closed_at = row.live_at if row.state is InstanceState.LIVE else row.ended_at or row.terminate_acked_at
        ended_at = max(min(closed_at or now, now), disk.since)
        if not await change_disk(tx, disk.id, ended_at=ended_at):
            return 0
        await book_all(tx, disk_accruals(row, disk, ended_at, rule_of(ctx, row), final=True))
        how = "is in use again" if row.state is InstanceState.LIVE else "is deleted with its instance"
        said = f"The disk of {row.name} {how}."
        record(tx, now, SYSTEM, disk.session_id, EventKind.DISK_OVER, reason=said)
    return 1
