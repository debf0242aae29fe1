"""An instance that fails while somebody counts on it: its people are told first, then its end is ordered.

*Announced* means: the outbox row is committed and one attempt was made on every channel, before the act. What is down
delays an end by a few seconds at most, so that it never keeps a GPU alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.services.asking import show_again
from ledger.claims import wake
from ledger.ends import unheard
from ledger.events import announce
from ledger.lookups import notification_of
from ledger.models import Instance, Notification, Request, Session
from ledger.states import InstanceState, NotificationKind
from ledger.values import Actor, ActorKind
from ledger.writes import Tx

#: An end that the service orders waits this long at most for the first attempt to tell its people.
HEARD_WITHIN = timedelta(seconds=10)


def subject_of(row: Instance, stray_id: str = "") -> str:
    """What the messages about one instance's failure are filed under, or those about a stray with its label."""
    return f"{row.session_id}/{row.id}/{stray_id}".rstrip("/")


async def tell(
    tx: Tx, row: Instance, now: datetime, *, stray_id: str = "", at_most_every: timedelta | None = None
) -> None:
    """Tell the owner and the request's channel what became of this instance; the text is rendered from its state."""
    request = await tx.get_one(Request, row.request_id)
    session = await tx.get_one(Session, row.session_id)
    owner = Actor.from_ref(session.owner)
    places = [request.channel, *([owner.id] if owner.kind is ActorKind.SLACK else [])]
    kind, subject = NotificationKind.SESSION_INTERRUPTED, subject_of(row, stray_id)
    for place in dict.fromkeys(places):
        there = await notification_of(tx, kind, subject, place) if at_most_every else None
        if there is None or at_most_every is None or now - (there.sent_at or there.created_at) >= at_most_every:
            await announce(tx, at=now, kind=kind, subject=subject, destination=place)
    await show_again(tx, request, now)


async def told_by(tx: Tx, row: Instance, now: datetime) -> datetime | None:
    """Until when this end waits to be told, at most: nothing is taken away before one attempt on every channel.

    None when nothing is left to wait for. The attempt wakes the row, so that only what nobody tries takes that long.
    """
    asked_at = row.terminate_asked_at
    if asked_at is None or row.terminate_acked_at is not None or now - asked_at >= HEARD_WITHIN:
        return None
    waits = await unheard(tx, NotificationKind.SESSION_INTERRUPTED, subject_of(row), asked_at)
    return asked_at + HEARD_WITHIN if waits else None


async def instead(tx: Tx, notification: Notification, contacts: Sequence[str], now: datetime) -> None:
    """Nobody reads this where it was to be read: what is about an end goes to the fallback contacts."""
    kind, subject = notification.kind, notification.subject
    about_an_end = kind is NotificationKind.SESSION_INTERRUPTED
    if kind is NotificationKind.REPLY:
        about_an_end = subject.startswith("drift/") or "/gate-" in subject or subject.endswith("/ended-by")
    # Who was turned to already is nobody's fallback.
    if not about_an_end or notification.destination in contacts or notification.destination.startswith("C"):
        return
    for contact in contacts:
        await announce(tx, at=now, kind=kind, subject=subject, destination=contact, body=notification.body)


async def heard(tx: Tx, notification: Notification, now: datetime) -> bool:
    """An attempt to tell was made: an end that waited for it is due. True when one is."""
    if notification.kind is not NotificationKind.SESSION_INTERRUPTED:
        return False
    row = await tx.get(Instance, notification.subject.partition("/")[2])
    if row is None or row.state is not InstanceState.TERMINATING or row.terminate_acked_at is not None:
        return False
    await wake(tx, Instance, row.id, now)
    return True
