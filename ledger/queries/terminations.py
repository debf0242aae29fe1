"""Look up facts about terminations: attempted notifications, who ordered them, and approved ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import and_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.actor import Actor
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import NotificationKind, NotificationState, SessionState
from ledger.models import Event, GrantRow, Instance, Node, Notification, Request, Session


@dataclass(frozen=True, slots=True)
class Said:
    """Name a notification that must be attempted before an end.

    It was announced at `since`; None: at any time, and the first attempt at each destination counts.
    """

    kind: NotificationKind
    subject: str
    since: datetime | None = None


async def unheard(tx: AsyncSession, said: Sequence[Said]) -> bool:
    """Whether a delivery of any of these is untried: one that failed is due later, one under way has a claim."""
    ways = []
    for one in said:
        untried = and_(Notification.sent_version == 0, Notification.error == "")
        if one.since is not None:
            untried = or_(Notification.due_at <= one.since, Notification.claim_token.is_not(None))
        ways.append(and_(Notification.kind == one.kind, Notification.subject == one.subject, untried))
    waiting = select(Notification.id).where(Notification.state == NotificationState.PENDING, or_(*ways)).limit(1)
    return await tx.scalar(waiting) is not None


async def behind(tx: AsyncSession, instance_id: str) -> tuple[Request, Session, Node | None]:
    """Return the request, the session and the agent of an instance, in one statement."""
    query = (
        select(Request, Session, Node)
        .select_from(Instance)
        .join(Request, Request.id == Instance.request_id)
        .join(Session, Session.id == Instance.session_id)
        .outerjoin(Node, Node.instance_id == Instance.id)
        .where(Instance.id == instance_id)
    )
    request, session, node = (await tx.execute(query)).one()
    return request, session, node


async def ordered_by(tx: AsyncSession, session_id: str) -> Actor | None:
    """Return who ordered the end of a session; None where nobody did."""
    ordered = (Event.kind == EventKind.SESSION_MOVED, Event.after == str(SessionState.TERMINATING))
    newest = select(Event.actor).where(Event.subject == session_id, *ordered).order_by(Event.id.desc()).limit(1)
    ref = await tx.scalar(newest)
    return None if ref is None else Actor.from_ref(ref)


async def approved_ends(tx: AsyncSession, instance_ids: Collection[str]) -> dict[str, datetime]:
    """Return until when each of these instances was approved to run; those of sessions that were ended are left out.

    A session whose request was asked again has no end of its own; then the grant's hours count from the send.
    """
    if not instance_ids:
        return {}
    rows = await tx.execute(
        select(Instance.id, Instance.sent_at, Instance.created_at, Session.deadline, GrantRow.hours)
        .join(Session, Session.id == Instance.session_id)
        .join(GrantRow, GrantRow.id == Instance.grant_id)
        .where(Instance.id.in_(list(instance_ids)))
        .where(
            or_(
                Session.state.not_in([SessionState.TERMINATING, SessionState.TERMINATED]),
                Session.end_code == EndReason.LOST,
            )
        )
    )
    found = {}
    for row in rows:
        granted = (row.sent_at or row.created_at) + timedelta(hours=float(Decimal(row.hours)))
        found[row.id] = max(granted, row.deadline or granted)
    return found
