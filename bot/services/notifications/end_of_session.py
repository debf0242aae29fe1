"""Warn of the end of a session: one message per end, updated at each warning.

It goes to the owner, or to the fallback contacts when the owner cannot be reached.
"""

from __future__ import annotations

from datetime import datetime

from bot.services.people import direct_messages
from bot.services.runtime.context import Context
from ledger.core import Tx, announce, notification_of, notifications_of
from ledger.kernel.states import NotificationKind, NotificationState
from ledger.models import Session

ENDING = NotificationKind.SESSION_ENDING
FINAL_WARNING = NotificationKind.SESSION_FINAL_WARNING
IDLE = NotificationKind.SESSION_IDLE


def subject_of(session: Session) -> str:
    """Return the subject of a message about the current end of a session.

    Another end is another subject, and so another message.
    """
    if session.deadline is None:
        raise ValueError(f"{session.id} has no end to speak of")
    return f"{session.id}/{int(session.deadline.timestamp())}"


def same_end(session: Session, seen_end_s: int | None) -> bool:
    """Whether a message about the end at `seen_end_s` (seconds since 1970; None: no end) is still right."""
    ends = [int(at.timestamp()) for at in (session.deadline, session.early_end_at) if at is not None]
    return seen_end_s is None or seen_end_s in ends


async def warn(ctx: Context, tx: Tx, session: Session, now: datetime, *, last: bool) -> None:
    """Send the warning of the end, or update it.

    An edit notifies nobody, so the final warning is also a new message.
    """
    subject = subject_of(session)
    destinations = {row.destination for row in await notifications_of(tx, ENDING, subject)}
    destinations |= set(await direct_messages.places(tx, ctx.policy, session))
    for destination in sorted(destinations):
        await announce(tx, now, ENDING, subject, destination=destination)
        if last:
            await announce(tx, now, FINAL_WARNING, subject, destination=destination)


async def reach_somebody(ctx: Context, tx: Tx, session: Session, now: datetime) -> None:
    """Notify the fallback contacts, once per end, when the delivery to the owner failed."""
    await reach(ctx, tx, session, ENDING, subject_of(session), now)


async def announce_early_end(ctx: Context, tx: Tx, session: Session, now: datetime) -> None:
    """Notify the owner of an early end, or the fallback contacts if the owner cannot be reached."""
    if session.early_end_at is None:
        return
    subject = early_end_subject(session.id, session.early_end_at)
    if await notifications_of(tx, IDLE, subject):
        await reach(ctx, tx, session, IDLE, subject, now)
        return
    for destination in await direct_messages.places(tx, ctx.policy, session):
        await announce(tx, now, IDLE, subject, destination=destination)


def early_end_subject(session_id: str, early_end_at: datetime) -> str:
    """Return the subject of a message about an early end."""
    return f"{session_id}/{int(early_end_at.timestamp())}"


async def reach(ctx: Context, tx: Tx, session: Session, kind: NotificationKind, subject: str, now: datetime) -> None:
    """Notify the fallback contacts, once each, of what could not be delivered to the owner."""
    person = await direct_messages.slack_user(tx, ctx.policy, session.owner)
    row = await notification_of(tx, kind, subject, person) if person is not None else None
    if row is None or row.sent_version > 0 or (row.state is not NotificationState.DEAD and row.tries == 0):
        return
    notified = {one.destination for one in await notifications_of(tx, kind, subject)}
    for destination in direct_messages.fallback(ctx.policy, session):
        if destination not in notified:
            await announce(tx, now, kind, subject, destination=destination)


async def refresh(tx: Tx, session: Session, now: datetime) -> None:
    """Update the messages about an end that has changed, and remove their buttons."""
    if session.deadline is not None and session.warned_at is not None:
        subject = subject_of(session)
        for row in await notifications_of(tx, ENDING, subject):
            await announce(tx, now, ENDING, subject, destination=row.destination)
    if session.early_end_at is not None:
        subject = early_end_subject(session.id, session.early_end_at)
        for row in await notifications_of(tx, IDLE, subject):
            await announce(tx, now, IDLE, subject, destination=row.destination)
