"""Book what each instance has used: every completed hour, and at its end the rest by the cloud's own rule."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType

from bot.rules.billing.billed_time import Billed, look
from bot.rules.billing.end_times import BLIND_SWEEPS
from bot.rules.billing.metering import (
    Piece,
    at_other_rates,
    booked_at_stops,
    completed,
    hour_suffix,
    is_booked,
    pieces,
    running,
)
from bot.services.notifications.paging import alone
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import NewEntry, Tx, book_all
from ledger.kernel.booked_component import BookedComponent
from ledger.kernel.entry_kind import EntryKind
from ledger.models import Disk, Instance, Orphan
from ledger.queries.lookups import Open
from ledger.queries.metering import (
    Billable,
    billable_ids,
    billable_instances,
    booked_keys,
    lock_billable,
    unended_orphans,
)
from ledger.queries.session_costs import Booked
from ledger.queries.views import SessionView
from providers.capabilities import BillingRule, BillingStart, Capabilities
from providers.contract import InstanceStatus, ObservedInstance

#: Instances whose hours are booked in one transaction, which others wait for.
TOGETHER = 250
#: Instances that are read at once to find those: a transaction over a whole fleet would take too long.
LOOKED_AT = 1000

log = logging.getLogger(__name__)


async def accrue_due(ctx: Context) -> int:
    """Book every completed hour of every billable instance.

    The key of an entry is the hour, so booking twice changes nothing. An hour is booked with all before it, so
    instances whose last completed hour is booked are skipped.
    """
    if clock_problem(ctx.clock):
        return 0  # The hours are booked when the clock is trusted again.
    now, for_orphans = ctx.clock.now(), await accrue_orphans(ctx)
    async with ctx.db.read() as tx:
        ids = await billable_ids(tx)
    due: list[str] = []
    for first in range(0, len(ids), LOOKED_AT):
        async with ctx.db.read() as tx:
            rows = await billable_instances(tx, ids[first : first + LOOKED_AT])
            last = {row.id: _last_keys(row, billed_until(row, now)) for row in rows}
            there = await booked_keys(tx, [key for keys in last.values() for key in keys])
        due += [row.id for row in rows if not there.issuperset(last[row.id])]
    booked = 0
    for first in range(0, len(due), TOGETHER):
        chunk = due[first : first + TOGETHER]
        try:
            booked += await _accrue_together(ctx, chunk, now)
        except Exception:
            # One row that cannot be booked must not stop the booking of the others.
            log.exception("the accruals failed together and are booked one by one")
            steps = [alone(ctx, one, "the accrual", _accrue_together(ctx, [one], now), 0) for one in chunk]
            booked += sum([await step for step in steps])
    return booked + for_orphans


async def _accrue_together(ctx: Context, instance_ids: Sequence[str], now: datetime) -> int:
    """Book the hours of those that are still billed when their families are locked.

    An instance that ended meanwhile has booked the rest itself. Where the hour before the last one is booked, only the
    last one is computed.
    """
    async with ctx.db.write() as tx:
        rows = await lock_billable(tx, instance_ids)
        hours = {row.id: _completed_hours(row, billed_until(row, now)) for row in rows}
        before = [
            entry_key(row, name, hour_suffix(n - 2)) for row in rows for name, n in hours[row.id].items() if n > 1
        ]
        there = await booked_keys(tx, before)
        found: list[NewEntry] = []
        for row in rows:
            first = {
                name: n - 1 for name, n in hours[row.id].items() if entry_key(row, name, hour_suffix(n - 2)) in there
            }
            found += accruals(ctx, row, billed_until(row, now), final=False, first_hours=first)
        return await book_all(tx, found)


def _completed_hours(row: Billable, until: datetime) -> dict[BookedComponent, int]:
    """Return how many hours of each component that costs something are completed, where there are any."""
    found = {}
    for component, start, paused_at, rate, _ in components(row, row.billing_from):
        hours = completed(start, min(until, paused_at or until)) if start is not None and is_booked(rate) else 0
        if hours:
            found[component] = hours
    return found


def _last_keys(row: Billable, until: datetime) -> list[str]:
    """Return the keys of the last completed hour of each component."""
    return [entry_key(row, name, hour_suffix(hours - 1)) for name, hours in _completed_hours(row, until).items()]


def billed_until(row: Billable, now: datetime) -> datetime:
    """Return until when an instance is billed.

    A cloud that accepted the termination stops billing, however long the proof of the end takes. An instance that a
    complete listing lacks is not billed further until it is listed again: the first absence would be its end.
    """
    return min(row.terminate_acked_at or now, _listed_until(row, now))


def _listed_until(row: Billable | Orphan, now: datetime) -> datetime:
    if not row.absent_at:
        return now
    try:
        return min([*map(datetime.fromisoformat, row.absent_at), now])
    except ValueError:
        return now  # The reconcile pass pages the operators about it; its cost, and the others', is booked meanwhile.


def billed_time(row: Open, item: ObservedInstance, rule: BillingRule, at: datetime) -> dict[str, datetime | None]:
    """Return the columns of billed time after a listing at time `at`."""
    before = Billed(
        row.billing_from,
        row.billing_until,
        row.storage_from or row.sent_at,
        row.storage_until,
        row.unbilled_at,
    )
    after = look(before, item.status, item.started_at, rule, at, holds_gpu=item.holds_gpu)
    return {
        "billing_from": after.gpu_from,
        "billing_until": after.gpu_until,
        "storage_from": row.storage_from if after.storage_from == before.storage_from else after.storage_from,
        "storage_until": after.storage_until,
        "unbilled_at": after.unbilled_at,
    }


def billed_from(seen: ObservedInstance, sent_at: datetime | None, able: Capabilities, now: datetime) -> datetime | None:
    """Return since when the GPU of an instance that is listed for the first time is billed; None while it is not.

    `sent_at`: when its create was sent, as far as that is known. Where the cloud does not say since when it runs, it is
    assumed to have booted as long as boots there take.
    """
    if able.billing.starts is BillingStart.CREATE:
        return seen.created_at or sent_at
    if seen.started_at is not None or seen.status is not InstanceStatus.RUNNING or sent_at is None:
        return seen.started_at
    return min(now, sent_at + timedelta(seconds=able.boot_expected_s))


def accruals(
    ctx: Context,
    row: Billable,
    until: datetime,
    *,
    final: bool,
    first_hours: Mapping[BookedComponent, int] = MappingProxyType({}),
) -> list[NewEntry]:
    """Return the entries for the use of `row` until `until`, per component; a booked entry is never booked twice.

    Storage is billed from the create on; the GPU from the moment that the cloud's rule says. Hours of a component below
    its number in `first_hours` are booked and left out.
    """
    rule = rule_of(ctx, row)
    return [
        accrual(row, component, entry_key(row, component, piece.suffix), piece)
        for component, start, paused_at, rate, stopped_s in components(
            row, gpu_billed_from(ctx, row, until) if final else row.billing_from
        )
        if start is not None and rate > 0
        for piece in pieces(
            start,
            min(until, paused_at or until),
            rate,
            rule,
            final=final,
            stopped_s=stopped_s,
            first_hour=first_hours.get(component, 0),
        )
    ]


def accrual(row: Billable, component: BookedComponent, key: str, piece: Piece) -> NewEntry:
    return NewEntry(
        key=key,
        kind=EntryKind.ACCRUE,
        debit=f"session:{row.session_id}",
        credit=f"payable:{row.cloud}:{row.account}",
        amount_usd=piece.amount_usd,
        at=piece.until,
        session_id=row.session_id,
        instance_id=row.id,
        component=component,
    )


def rule_of(ctx: Context, row: Billable | Orphan) -> BillingRule:
    """Return its cloud's billing rule; the default rule for a cloud that is not set up here now."""
    provider = ctx.providers.get(row.cloud)
    return provider.capabilities.billing if provider else BillingRule()


def gpu_rate(price_usd_h: Decimal, storage_usd_h: Decimal) -> Decimal:
    """Return the dollars per hour of the GPU alone, of a price that includes the storage."""
    return max(price_usd_h - storage_usd_h, Decimal(0))


def components(
    row: Billable, gpu_from: datetime | None
) -> tuple[tuple[BookedComponent, datetime | None, datetime | None, Decimal, int], ...]:
    """Return each component with the start and end of its billing, dollars per hour and seconds booked at stops."""
    gpu_usd_h = gpu_rate(row.price_usd_h, row.storage_usd_h)
    return (
        (
            BookedComponent.STORAGE,
            row.storage_from or row.sent_at,
            row.storage_until,
            row.storage_usd_h,
            row.storage_split_s or 0,
        ),
        (BookedComponent.GPU, gpu_from, row.billing_until, gpu_usd_h, gpu_parts_s(row)),
    )


def gpu_parts_s(row: Billable) -> int:
    """Return how many seconds of the GPU's billed time are booked by parts of hours: at a stop or an owner's change."""
    return max(row.gpu_booked_s or 0, row.gpu_split_s or 0)


def entry_key(row: Billable, component: BookedComponent, suffix: str) -> str:
    return f"{row.id}/{component}/{suffix}"


def gpu_billed_from(ctx: Context, row: Billable, ended_at: datetime) -> datetime | None:
    """Return since when the GPU of an instance that is gone was billed.

    An instance that was never seen running, and not listed for long before its end, is assumed to have run meanwhile.
    """
    if row.billing_from is not None or row.unbilled_at is None:
        return row.billing_from
    blind = ended_at - row.unbilled_at > timedelta(seconds=BLIND_SWEEPS * ctx.timing.sweep_s)
    return row.unbilled_at if blind else None


async def accrue_orphans(ctx: Context) -> int:
    """Book every completed hour of the open orphans: a quarantined orphan costs, too."""
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        found = [
            entry
            for orphan in await unended_orphans(tx)
            for entry in orphan_entries(orphan, _listed_until(orphan, now), rule_of(ctx, orphan), final=False)
        ]
        there = await booked_keys(tx, [entry.key for entry in found])
    new = [entry for entry in found if entry.key not in there]
    if not new:
        return 0
    async with ctx.db.write() as tx:
        return await book_all(tx, new)


async def accrue_orphan(ctx: Context, tx: Tx, orphan: Orphan, until: datetime, session_id: str | None = None) -> None:
    """Book what an orphan has cost until its end, or until it becomes a session.

    From then on its cost is booked under that session, whose own end is rounded as the cloud rounds it.
    """
    rule = rule_of(ctx, orphan) if session_id is None else BillingRule()
    await book_all(tx, orphan_entries(orphan, until, rule, final=True, session_id=session_id))


def orphan_entries(
    orphan: Orphan, until: datetime, rule: BillingRule, *, final: bool, session_id: str | None = None
) -> list[NewEntry]:
    """Return the entries for an orphan's cost: a loss, on the operators' account of that orphan."""
    start = orphan.billing_from or orphan.first_seen_at
    return [
        NewEntry(
            key=f"{orphan.id}/{piece.suffix}",
            kind=EntryKind.LOSS,
            debit=f"loss:{orphan.id}",
            credit=f"payable:{orphan.cloud}:{orphan.account}",
            amount_usd=piece.amount_usd,
            at=piece.until,
            session_id=session_id,
            instance_id=orphan.instance_id,
            component=BookedComponent.ORPHAN,
        )
        for piece in pieces(start, until, orphan.price_usd_h, rule, final=final)
    ]


def cost_now(ctx: Context, view: SessionView, now: datetime) -> Decimal:
    """Return the dollars that a session has cost until now: the booked amount, and the running one."""
    row = view.instance
    if row is None or view.session.ended_at is not None:
        return view.accrued_usd
    more = (running_usd(one, booked, now, rule_of(ctx, one)) for one, booked in view.others)
    return view.accrued_usd + sum(more, running_usd(row, view.booked, now, rule_of(ctx, row), view.disk))


def running_usd(row: Billable, booked: Booked, now: datetime, rule: BillingRule, disk: Disk | None = None) -> Decimal:
    """Return the dollars that an instance and its retained disk have used but that no entry books yet."""
    if row.ended_at is not None:
        return Decimal(0)
    until = billed_until(row, now)
    parts = [
        running(start, min(until, paused_at or until), rate, rule, booked.hours.get(component, 0), stopped_s)
        for component, start, paused_at, rate, stopped_s in components(row, row.billing_from)
    ]
    if disk is not None:
        parts += [entry.amount_usd for entry in disk_accruals(row, disk, until, rule, final=True)]
    return sum(parts, Decimal(0))


def before_now(row: Instance, booked: Booked, price_usd_h: Decimal) -> Decimal:
    """Return the dollars that an instance has cost beyond its time at this price.

    They come from its earlier rates, and from a retained disk.
    """
    gpu_usd_h = gpu_rate(price_usd_h, row.storage_usd_h)
    rates = {BookedComponent.GPU: gpu_usd_h, BookedComponent.STORAGE: row.storage_usd_h}
    parts_s = {BookedComponent.GPU: gpu_parts_s(row), BookedComponent.STORAGE: row.storage_split_s or 0}
    parts_usd = sum(booked_at_stops(rate, parts_s[name], booked.hours.get(name, 0)) for name, rate in rates.items())
    return at_other_rates(booked.usd - parts_usd, [(booked.hours.get(name, 0), rate) for name, rate in rates.items()])


def disk_accruals(row: Billable, disk: Disk, until: datetime, rule: BillingRule, *, final: bool) -> list[NewEntry]:
    """Return the unbooked entries for what a retained disk costs above a running one, until `until`."""
    surcharge = max(disk.price_usd_h - row.storage_usd_h, Decimal(0))
    since, rule = int(disk.since.timestamp()), BillingRule(quantum_s=rule.quantum_s)
    return [
        accrual(row, BookedComponent.STORAGE, f"{row.id}/disk/{since}/{piece.suffix}", piece)
        for piece in pieces(disk.since, until, surcharge, rule, final=final)[disk.booked_h :]
    ]
