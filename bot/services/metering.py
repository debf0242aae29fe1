"""Accruals: what each instance has used, booked by the hour and, at its end, to the cloud's own rule."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.billed import Billed, look
from bot.rules.metering import pieces, so_far
from bot.services.context import Context
from bot.services.paging import alone
from ledger.lookups import billable_instances
from ledger.models import Instance, Stray
from ledger.reads import SessionView
from ledger.writes import Tx, book
from providers.base import BillingRule, ObservedInstance

#: An instance that was not looked at for longer than this many sweeps may have done anything meanwhile.
BLIND_SWEEPS = 10

log = logging.getLogger(__name__)


async def accrue_due(ctx: Context) -> int:
    """Book every completed hour of every billable instance. Booking twice changes nothing: the key is the hour."""
    async with ctx.db.read() as tx:
        rows = await billable_instances(tx)
    now = ctx.clock.now()
    due = [row for row in rows if _has_news(row, now)]
    if not due:
        return 0
    try:
        return await _accrue_together(ctx, due, now)
    except Exception:
        # One row that cannot be booked must not keep the others from it.
        log.exception("the accruals failed together and are booked one by one")
        steps = [alone(ctx, row.id, "the accrual", _accrue_together(ctx, [row], now), 0) for row in due]
        return sum([await step for step in steps])


async def _accrue_together(ctx: Context, due: Sequence[Instance], now: datetime) -> int:
    async with ctx.db.write() as tx:
        return sum([await accrue(ctx, tx, row, _billed_until(row, now), final=False) for row in due])


def _billed_until(row: Instance, now: datetime) -> datetime:
    """A cloud that took the order to end bills no further, however long the proof of the end takes."""
    return min(row.terminate_acked_at or now, now)


def _has_news(row: Instance, now: datetime) -> bool:
    start = row.sent_at or row.created_at
    return now - start >= timedelta(hours=1)


def billed_time(row: Instance, item: ObservedInstance, rule: BillingRule, at: datetime) -> dict[str, datetime | None]:
    """The columns of billed time after a look at time `at`."""
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


async def accrue(ctx: Context, tx: Tx, row: Instance, until: datetime, *, final: bool) -> int:
    """Book what `row` has used until then, per component. Returns how many entries are new.

    Storage is billed from the create on; the GPU from the moment that the cloud's rule says.
    """
    provider = ctx.providers.get(row.cloud)
    rule = provider.capabilities.billing if provider else BillingRule()
    gpu_usd_h = max(row.price_usd_h - row.storage_usd_h, Decimal(0))
    parts = [
        ("storage", row.storage_from or row.sent_at, row.storage_until, row.storage_usd_h),
        ("gpu", _gpu_from(ctx, row, until) if final else row.billing_from, row.billing_until, gpu_usd_h),
    ]
    booked = 0
    for component, start, paused_at, rate in parts:
        if start is None or rate <= 0:
            continue
        for piece in pieces(start, min(until, paused_at or until), rate, rule, final=final):
            booked += await book(
                tx,
                key=f"{row.id}/{component}/{piece.suffix}",
                kind="accrue",
                debit=f"session:{row.session_id}",
                credit=f"payable:{row.cloud}:{row.account}",
                amount_usd=piece.amount_usd,
                at=piece.until,
                session_id=row.session_id,
                instance_id=row.id,
                component=component,
            )
    return booked


def _gpu_from(ctx: Context, row: Instance, ended_at: datetime) -> datetime | None:
    """Since when the GPU of an instance that is gone was billed.

    One that was never seen to run, and that nobody looked at for long before its end, is taken to have run meanwhile.
    """
    if row.billing_from is not None or row.unbilled_at is None:
        return row.billing_from
    blind = ended_at - row.unbilled_at > timedelta(seconds=BLIND_SWEEPS * ctx.timing.sweep_s)
    return row.unbilled_at if blind else None


async def accrue_stray(tx: Tx, stray: Stray, until: datetime) -> None:
    """A stray's cost is ours too, and is shown as a loss; booked once, at its end."""
    start = stray.billing_from or stray.first_seen_at
    for piece in pieces(start, until, stray.price_usd_h, BillingRule(), final=True):
        await book(
            tx,
            key=f"{stray.id}/{piece.suffix}",
            kind="loss",
            debit=f"loss:{stray.id}",
            credit=f"payable:{stray.cloud}:{stray.account}",
            amount_usd=piece.amount_usd,
            at=piece.until,
            instance_id=stray.instance_id,
            component="stray",
        )


def cost_now(ctx: Context, view: SessionView, now: datetime) -> Decimal:
    """What a session has cost until now, the running hour included: for showing."""
    row = view.instance
    if row is None or view.session.ended_at is not None or row.ended_at is not None:
        return view.accrued_usd
    rule = ctx.providers[row.cloud].capabilities.billing if row.cloud in ctx.providers else BillingRule()
    gpu = so_far(
        row.billing_from, min(now, row.billing_until or now), max(row.price_usd_h - row.storage_usd_h, Decimal(0)), rule
    )
    disk = so_far(row.storage_from or row.sent_at, min(now, row.storage_until or now), row.storage_usd_h, rule)
    return max(view.accrued_usd, gpu + disk)
