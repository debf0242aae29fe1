"""Show the messages that a session is ready anew, because what they say has changed."""

from __future__ import annotations

from datetime import datetime

from ledger.core import Tx, announce, notifications_of
from ledger.kernel.states import NotificationKind


async def show_again(tx: Tx, session_id: str, now: datetime) -> None:
    """Let each message that a session is ready be edited from the state of now."""
    for shown in await notifications_of(tx, NotificationKind.SESSION_READY, session_id):
        await announce(tx, now, shown.kind, shown.subject, destination=shown.destination, body=shown.body)
