"""Put the card of a request, and the replies in its thread, into the outbox."""

from __future__ import annotations

from datetime import datetime

from ledger.core import Tx, announce, announce_once
from ledger.kernel.states import NotificationKind
from ledger.models import Request


async def show_again(tx: Tx, request: Request, now: datetime) -> None:
    """Put the request's message into the outbox for another rendering."""
    await announce(tx, now, NotificationKind.REQUEST_MESSAGE, request.card_id, destination=request.channel)


async def show_details(tx: Tx, request: Request, now: datetime) -> None:
    """Put the details of a request's current quote into the outbox: one reply in its thread a quote version."""
    subject = f"{request.id}/{request.quote_version}"
    await announce_once(tx, now, NotificationKind.REQUEST_DETAILS, subject, destination=request.channel, body={})


async def remind_again(tx: Tx, request: Request, now: datetime) -> None:
    """Remind the approvers of a request that is not the one they saw, in a new message: reminder 0 of its quote.

    Slack notifies nobody of an edited message, and the approvers believe that their decision is done.
    """
    subject = f"{request.id}/{request.quote_version}.0"
    kind = NotificationKind.REQUEST_REMINDER
    await announce(tx, now, kind, subject, destination=request.channel)
