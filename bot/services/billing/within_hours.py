"""Book the part of an hour that ran before a stop, before another rate, or before another owner."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.billing.end_times import BLIND_SWEEPS
from bot.rules.billing.metering import at_stop, rate_step
from bot.services.billing.metering import (
    accrual,
    accruals,
    billed_until,
    components,
    entry_key,
    gpu_parts_s,
    gpu_rate,
    rule_of,
)
from bot.services.runtime.clock_guard import require_trusted
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, book, book_all, lock_family
from ledger.kernel import money
from ledger.kernel.booked_component import BookedComponent
from ledger.kernel.entry_kind import EntryKind
from ledger.models import Instance


async def change_rate(ctx: Context, tx: Tx, instance_id: str, price_usd_h: Decimal, now: datetime) -> None:
    """Set the rate of an instance to `price_usd_h`, in dollars per hour, from now on; earlier use keeps its rate.

    What the first listings show is assumed to have been billed from the start.
    """
    await lock_family(tx, Instance, instance_id)
    row = await tx.get_one(Instance, instance_id, populate_existing=True)
    price_usd_h = money.rate(price_usd_h)
    if row.price_usd_h == price_usd_h:
        return  # Another replica changed it already.
    known_s = BLIND_SWEEPS * ctx.timing.sweep_s
    if row.live_at is not None and now - row.live_at > timedelta(seconds=known_s):
        await _split(ctx, tx, row, price_usd_h, now)
    await amend(tx, Instance, row.id, price_usd_h=price_usd_h)


async def _split(ctx: Context, tx: Tx, row: Instance, price_usd_h: Decimal, now: datetime) -> None:
    """Book the completed hours at the old rate, and what corrects the running hour, booked at the new one."""
    start, old = row.billing_from, gpu_rate(row.price_usd_h, row.storage_usd_h)
    if start is None or old <= 0:
        return
    await book_all(tx, accruals(ctx, row, billed_until(row, now), final=False))
    until = min(billed_until(row, now), row.billing_until or now)
    step = rate_step(start, until, old, gpu_rate(price_usd_h, row.storage_usd_h), gpu_parts_s(row))
    mine, theirs = f"session:{row.session_id}", f"payable:{row.cloud}:{row.account}"
    await book(
        tx,
        key=entry_key(row, BookedComponent.GPU, f"rate-{now:%Y%m%dT%H%M%S%f}"),
        kind=EntryKind.TRUE_UP,
        debit=mine if step > 0 else theirs,
        credit=theirs if step > 0 else mine,
        amount_usd=abs(step),
        at=now,
        session_id=row.session_id,
        instance_id=row.id,
        component=BookedComponent.GPU,
        note="the rate changed within the hour",
    )


async def accrue_stop(ctx: Context, tx: Tx, instance_id: str) -> None:
    """Book what an instance ran until its stop, when a listing shows the stop. The hour that it cuts is a part."""
    await lock_family(tx, Instance, instance_id)
    row = await tx.get_one(Instance, instance_id, populate_existing=True)
    if row.billing_from is not None and row.billing_until is not None:
        booked_s = await _book_part(ctx, tx, row, BookedComponent.GPU, row.billing_until)
        if booked_s is not None:
            await amend(tx, Instance, row.id, gpu_booked_s=booked_s)


async def accrue_owner_change(ctx: Context, tx: Tx, instance_id: str, now: datetime) -> None:
    """Book what an instance has cost until now, when its session gets another owner: the rest of the hour is theirs.

    What is booked for good can't be taken back, so a clock in doubt books nothing.
    """
    require_trusted(ctx.clock, "The change of owner")
    await lock_family(tx, Instance, instance_id)
    row = await tx.get_one(Instance, instance_id, populate_existing=True)
    until = billed_until(row, now)
    gpu_s = await _book_part(ctx, tx, row, BookedComponent.GPU, until)
    storage_s = await _book_part(ctx, tx, row, BookedComponent.STORAGE, until)
    await amend(
        tx,
        Instance,
        row.id,
        gpu_split_s=row.gpu_split_s if gpu_s is None else gpu_s,
        storage_split_s=row.storage_split_s if storage_s is None else storage_s,
    )


async def _book_part(ctx: Context, tx: Tx, row: Instance, of: BookedComponent, until: datetime) -> int | None:
    """Book one component until a moment within an hour. Return its booked seconds; None where nothing is new."""
    for component, start, paused_at, rate, before_s in components(row, row.billing_from):
        if component is not of or start is None or rate <= 0:
            continue
        end = min(until, paused_at or until)
        await book_all(tx, [one for one in accruals(ctx, row, end, final=False) if one.component == of])
        piece, booked_s = at_stop(start, end, rate, rule_of(ctx, row), before_s)
        if piece is not None:
            await book_all(tx, [accrual(row, of, entry_key(row, of, piece.suffix), piece)])
            return booked_s
    return None
