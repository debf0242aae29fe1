"""Deliver the notifications of the outbox, once per version."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from bot.services.notifications.interruption import instead
from bot.services.outbox.barrier import release_waiting_ends
from bot.services.runtime.context import Context
from bot.services.runtime.ports import SENDER_DIED, DeliveryFailed, Messenger
from ledger.core import Claim, claim_rows, notification_dead, notification_sent, release
from ledger.kernel.states import NotificationState
from ledger.models import Notification

BATCH = 16

log = logging.getLogger(__name__)


async def deliver_due(ctx: Context, messenger: Messenger) -> int:
    """Deliver every due notification. A failed delivery is retried without end; state never depends on it."""
    lease = timedelta(seconds=ctx.timing.claim_ttl_s)
    held = await claim_rows(
        ctx.db, Notification, now=ctx.clock.now(), states={NotificationState.PENDING}, limit=BATCH, lease=lease
    )
    await asyncio.gather(*(_deliver(ctx, messenger, one, row) for one, row in held))
    return len(held)


async def _deliver(ctx: Context, messenger: Messenger, held: Claim, notification: Notification) -> None:
    await ctx.pressure.ease()
    if held.taken_over:
        notification.error = SENDER_DIED
    try:
        shown = await messenger.deliver(notification)
    except DeliveryFailed as error:
        await _failed(ctx, held, notification, error)
        return
    except Exception:
        # An unforeseen failure must not keep other messages from being delivered, nor be retried without a pause.
        log.exception("the delivery of %s failed", notification.id)
        await _failed(ctx, held, notification, DeliveryFailed(SENDER_DIED))
        return
    async with ctx.db.write() as tx:
        await notification_sent(
            tx, held, version=notification.version, channel=shown.channel, ts=shown.ts, at=ctx.clock.now()
        )
        due = await release_waiting_ends(tx, notification, ctx.clock.now())
    if due:
        ctx.hints.instances.set()


async def _failed(ctx: Context, held: Claim, notification: Notification, error: DeliveryFailed) -> None:
    now = ctx.clock.now()
    tries = notification.tries + 1
    async with ctx.db.write() as tx:
        if error.permanent:
            log.warning("notification %s cannot be shown: %s", notification.id, error)
            await notification_dead(tx, held, version=notification.version, error=str(error))
            await instead(tx, notification, ctx.policy.fallback_contacts, now)
        else:
            due_at = _next_try(ctx, now, tries, error)
            await release(tx, Notification, held, due_at=due_at, tries=tries, error=str(error))
        due = await release_waiting_ends(tx, notification, now)
    if due:
        ctx.hints.instances.set()


def _next_try(ctx: Context, now: datetime, tries: int, error: DeliveryFailed) -> datetime:
    pause_s = min(ctx.timing.outbox_retry_s * 2 ** min(tries - 1, 16), ctx.timing.outbox_retry_max_s)
    return now + timedelta(seconds=max(pause_s, error.retry_after_s or 0))
