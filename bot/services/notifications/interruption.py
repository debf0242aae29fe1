"""Notify people of an instance that fails while a session needs it, before its termination.

`outbox.barrier` makes the termination wait for one delivery attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.rules.policy.policy import Policy
from bot.services.notifications.request_message import show_again
from bot.services.people import direct_messages
from ledger.core import Tx, announce, notification_of
from ledger.kernel.actor import Actor
from ledger.kernel.states import NotificationKind
from ledger.models import Instance, Notification, Request, Session

#: The subject of the message that says who ended a session ends with this.
ENDED_BY = "/ended-by"
#: Messages about a coming end that are edited in place.
_EDITED = frozenset(
    {NotificationKind.SESSION_ENDING, NotificationKind.SESSION_IDLE, NotificationKind.SESSION_CHECKPOINT_HOLD}
)


def subject_of(row: Instance, orphan_id: str = "") -> str:
    """Return the subject of the messages about one instance's failure, or about an orphan with its label."""
    return f"{row.session_id}/{row.id}/{orphan_id}".rstrip("/")


async def notify_interruption(
    tx: Tx,
    policy: Policy,
    row: Instance,
    now: datetime,
    *,
    orphan_id: str = "",
    at_most_every: timedelta | None = None,
) -> None:
    """Notify the owner and the request's channel of what happened to this instance.

    The text is rendered from its state.
    """
    request = await tx.get_one(Request, row.request_id)
    session = await tx.get_one(Session, row.session_id)
    person = await direct_messages.slack_user(tx, policy, session.owner)
    places = [request.channel, *([person] if person is not None else [])]
    kind, subject = NotificationKind.SESSION_INTERRUPTED, subject_of(row, orphan_id)
    for place in dict.fromkeys(places):
        there = await notification_of(tx, kind, subject, place) if at_most_every else None
        if there is None or at_most_every is None or now - (there.sent_at or there.created_at) >= at_most_every:
            await announce(tx, now, kind, subject, destination=place)
    await show_again(tx, request, now)


async def notify_ended_by(tx: Tx, policy: Policy, session: Session, by: Actor, sentence: str, now: datetime) -> None:
    """Notify the owner, before the termination, that somebody else ends the session."""
    person = await direct_messages.slack_user(tx, policy, session.owner)
    themselves = person is not None and person == await direct_messages.slack_user(tx, policy, by.ref)
    if themselves or session.owner == by.ref:
        return
    whose = "Session" if person is None else "Your session"
    said = f"{whose} {session.short_id} is being ended by {by.ref}: {sentence}"
    await direct_messages.notify_owner(tx, policy, now, session, subject=ended_by_subject(session), text=said)


def ended_by_subject(session: Session) -> str:
    """Return the subject of the message that says who ended a session."""
    return f"{session.id}{ENDED_BY}"


async def instead(tx: Tx, notification: Notification, contacts: Sequence[str], now: datetime) -> None:
    """Send an undeliverable message about an end to the fallback contacts."""
    kind, subject = notification.kind, notification.subject
    about_an_end = kind is NotificationKind.SESSION_INTERRUPTED or kind in _EDITED
    if kind is NotificationKind.REPLY:
        about_an_end = subject.startswith("drift/") or "/gate-" in subject or subject.endswith(ENDED_BY)
    # A fallback contact or a channel has no fallback of its own.
    if not about_an_end or notification.destination in contacts or notification.destination.startswith("C"):
        return
    for contact in contacts:
        if kind in _EDITED and await notification_of(tx, kind, subject, contact) is not None:
            continue  # It has the message already, which the next update edits.
        await announce(tx, now, kind, subject, destination=contact, body=notification.body)
