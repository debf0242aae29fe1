"""An instance that fails while somebody counts on it: its people are told first, then its end is ordered.

`hearing` sees to it that one attempt to tell them was made before the act.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.services.notifications.request_message import show_again
from ledger.core.events import announce
from ledger.core.outbox import notification_of
from ledger.core.writes import Tx
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.ids import short_id
from ledger.kernel.states import NotificationKind
from ledger.models import Instance, Notification, Request, Session

#: How the subject of the message ends that says who ended a session.
ENDED_BY = "/ended-by"
#: Messages before an end that stay one message, which is edited.
_EDITED = frozenset(
    {NotificationKind.SESSION_ENDING, NotificationKind.SESSION_UNATTENDED, NotificationKind.SESSION_HELD}
)


def subject_of(row: Instance, stray_id: str = "") -> str:
    """What the messages about one instance's failure are filed under, or those about a stray with its label."""
    return f"{row.session_id}/{row.id}/{stray_id}".rstrip("/")


async def notify_interruption(
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


async def notify_ended_by(tx: Tx, session: Session, by: Actor, sentence: str, now: datetime, *elsewhere: str) -> None:
    """Whose machine is ended by somebody else hears of it before the act, and by whom.

    `elsewhere` are told for an owner whom nobody can write to.
    """
    owner = Actor.from_ref(session.owner)
    if owner == by:
        return
    whose = "Your session" if owner.kind is ActorKind.SLACK else "Session"
    body = {"text": f"{whose} {short_id(session.id)} is being ended by {by.ref}: {sentence}"}
    kind, subject = NotificationKind.REPLY, ended_by_subject(session)
    for place in (owner.id,) if owner.kind is ActorKind.SLACK else elsewhere:
        await announce(tx, at=now, kind=kind, subject=subject, destination=place, body=body)


def ended_by_subject(session: Session) -> str:
    """What the message is filed under that says who ended a session."""
    return f"{session.id}{ENDED_BY}"


async def instead(tx: Tx, notification: Notification, contacts: Sequence[str], now: datetime) -> None:
    """Nobody reads this where it was to be read: what is about an end goes to the fallback contacts."""
    kind, subject = notification.kind, notification.subject
    about_an_end = kind is NotificationKind.SESSION_INTERRUPTED or kind in _EDITED
    if kind is NotificationKind.REPLY:
        about_an_end = subject.startswith("drift/") or "/gate-" in subject or subject.endswith(ENDED_BY)
    # Who was turned to already is nobody's fallback.
    if not about_an_end or notification.destination in contacts or notification.destination.startswith("C"):
        return
    for contact in contacts:
        if kind in _EDITED and await notification_of(tx, kind, subject, contact) is not None:
            continue  # It has been told, and whoever brings that up to date edits what it reads.
        await announce(tx, at=now, kind=kind, subject=subject, destination=contact, body=notification.body)
