"""Put the card of a request, and the details in its thread, into the outbox."""

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
