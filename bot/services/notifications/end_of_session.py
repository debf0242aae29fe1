"""The message before the end of a session: one per end, updated at each warning, and told where somebody reads it."""

from __future__ import annotations

from datetime import datetime

from bot.services.runtime.context import Context
from ledger.core.events import announce
from ledger.core.outbox import notification_of, notifications_of
from ledger.core.writes import Tx
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import NotificationKind, NotificationState
from ledger.models import Session

ENDING = NotificationKind.SESSION_ENDING
LAST_CALL = NotificationKind.SESSION_LAST_CALL
UNATTENDED = NotificationKind.SESSION_UNATTENDED


def subject_of(session: Session) -> str:
    """What a message about the end that stands now is filed under: another end is another message."""
    if session.deadline is None:
        raise ValueError(f"{session.id} has no end to speak of")
    return f"{session.id}/{int(session.deadline.timestamp())}"


def same_end(session: Session, seen_end_s: int | None) -> bool:
    """Whether a message that spoke of the end at `seen_end_s` (seconds since 1970; None: of no end) is still right."""
    ends = [int(at.timestamp()) for at in (session.deadline, session.cut_at) if at is not None]
    return seen_end_s is None or seen_end_s in ends


async def warn(ctx: Context, tx: Tx, session: Session, now: datetime, *, last: bool) -> None:
    """Show the warning, or bring it up to date. An edit notifies nobody, so the last is a message of its own too."""
    subject = subject_of(session)
    owner = Actor.from_ref(session.owner)
    told = {row.destination for row in await notifications_of(tx, ENDING, subject)}
    told |= {owner.id} if owner.kind is ActorKind.SLACK else set(others(ctx, session))
    for destination in sorted(told):
        await announce(tx, at=now, kind=ENDING, subject=subject, destination=destination)
        if last:
            await announce(tx, at=now, kind=LAST_CALL, subject=subject, destination=destination)


async def reach_somebody(ctx: Context, tx: Tx, session: Session, now: datetime) -> None:
    """Tell the fallback contacts when the owner was tried and is not reached. Each is told once per end."""
    await reach(ctx, tx, session, ENDING, subject_of(session), now)


async def announce_early_end(ctx: Context, tx: Tx, session: Session, now: datetime) -> None:
    """Tell the owner of an end before the approved one, or whoever can be told; once it was told, of what became of it.

    Called again it tells the fallback contacts, when the owner was tried and is not reached.
    """
    if session.cut_at is None:
        return
    owner, subject = Actor.from_ref(session.owner), early_end_subject(session.id, session.cut_at)
    if await notifications_of(tx, UNATTENDED, subject):
        await reach(ctx, tx, session, UNATTENDED, subject, now)
        return
    for destination in sorted({owner.id} if owner.kind is ActorKind.SLACK else set(others(ctx, session))):
        await announce(tx, at=now, kind=UNATTENDED, subject=subject, destination=destination)


def early_end_subject(session_id: str, cut_at: datetime) -> str:
    """What a message about an end before the approved one is filed under."""
    return f"{session_id}/{int(cut_at.timestamp())}"


async def reach(ctx: Context, tx: Tx, session: Session, kind: NotificationKind, subject: str, now: datetime) -> None:
    """Tell the fallback contacts what the owner was to be told and is not reached with. Each is told once."""
    owner = Actor.from_ref(session.owner)
    row = await notification_of(tx, kind, subject, owner.id)
    if row is None or row.sent_version > 0 or (row.state is not NotificationState.DEAD and row.tries == 0):
        return
    told = {one.destination for one in await notifications_of(tx, kind, subject)}
    for destination in others(ctx, session):
        if destination not in told:
            await announce(tx, at=now, kind=kind, subject=subject, destination=destination)


async def refresh(tx: Tx, session: Session, now: datetime) -> None:
    """What was said about the end that stands is not right any more: show it anew, without its buttons."""
    if session.deadline is not None and session.warned_at is not None:
        subject = subject_of(session)
        for row in await notifications_of(tx, ENDING, subject):
            await announce(tx, at=now, kind=ENDING, subject=subject, destination=row.destination)
    if session.cut_at is not None:
        subject = early_end_subject(session.id, session.cut_at)
        for row in await notifications_of(tx, UNATTENDED, subject):
            await announce(tx, at=now, kind=UNATTENDED, subject=subject, destination=row.destination)


def others(ctx: Context, session: Session) -> tuple[str, ...]:
    """Whoever is told when the owner cannot be."""
    return ctx.policy.fallback_contacts or (session.channel,)
