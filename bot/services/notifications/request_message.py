"""Render a request's message again."""

from __future__ import annotations

from datetime import datetime

from ledger.core import Tx, announce
from ledger.kernel.states import NotificationKind
from ledger.models import Request


async def show_again(tx: Tx, request: Request, now: datetime) -> None:
    """Put the request's message into the outbox for another rendering."""
    await announce(tx, now, NotificationKind.REQUEST_MESSAGE, request.id, destination=request.channel)
