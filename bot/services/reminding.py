"""Reminders: a request that waits for a decision is brought up again where it was asked, before it expires."""

from __future__ import annotations

from datetime import datetime

from bot.rules.reminders import next_look, reminders_due
from bot.services.context import Context
from ledger.claims import Claim, release
from ledger.events import announce
from ledger.lookups import current_quote, notification_of, override_of
from ledger.models import Request
from ledger.states import NotificationKind, RequestState
from ledger.writes import Tx


async def ask_anew(tx: Tx, request: Request, now: datetime) -> None:
    """Tell those who are asked again, in a message of its own: it is number 0 of the new quote's reminders.

    The request's own message is edited, which tells nobody, and those who decided believe that it is done.
    """
    subject = f"{request.id}/{request.quote_version}.0"
    kind = NotificationKind.REQUEST_REMINDER
    await announce(tx, at=now, kind=kind, subject=subject, destination=request.channel)


async def remind(ctx: Context, tx: Tx, held: Claim, request: Request, now: datetime) -> None:
    """Announce the reminder that is due, and give the row back until the next one or its expiry.

    Each reminder of each quote version is a message of its own, because an edit notifies nobody. Those that were missed
    while nothing ran are one. A request that waits for more hours to be allowed is brought up by that question alone.
    """
    quote = await current_quote(tx, request)
    opened_at = quote.created_at if quote else request.created_at
    number = reminders_due(opened_at, now, ctx.policy.remind_after_s)
    due_at = next_look(opened_at, request.expires_at, now, ctx.policy.remind_after_s)
    if not await release(tx, Request, held, due_at=due_at) or number == 0:
        return  # Somebody else has it, or it was only looked at early.
    override = await override_of(tx, request.id)
    if override is not None and override.state is RequestState.PENDING:
        return
    subject = f"{request.id}/{request.quote_version}.{number}"
    kind = NotificationKind.REQUEST_REMINDER
    if await notification_of(tx, kind, subject, request.channel) is None:
        await announce(tx, at=now, kind=kind, subject=subject, destination=request.channel)
