"""Remind the operators of quarantined orphans and of accounts without a key, which no reconcile pass reports."""

from __future__ import annotations

from bot.services.instances import key_rotation
from bot.services.notifications.paging import OPERATORS, page_in
from bot.services.runtime import recovery_mode
from bot.services.runtime.context import Context
from ledger.queries.cloud_accounts import accounts_in_use
from ledger.queries.orphans import quarantined

#: Seconds between two passes.
LOOK_S = 30.0


async def operator_reminders_due(ctx: Context) -> int:
    """Page the operators again about what waits for them. Return how many messages were written.

    What waits is a quarantined orphan, or an account with open instances whose key is not set up here.
    """
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        waiting = bool(await quarantined(tx))
        lost = key_rotation.unreachable(await accounts_in_use(tx), ctx.providers)
    if not waiting and not lost:
        return 0
    async with ctx.db.write() as tx:
        pause_s = ctx.timing.recovery_page_s
        said = [await recovery_mode.page_again(tx, one, pause_s, now, OPERATORS) for one in await quarantined(tx)]
        said += [await page_in(ctx, tx, f"{one.cloud}/{one.account}/no-key", why, now) for one, why in lost]
    if any(said):
        ctx.hints.outbox.set()
    return sum(said)
