"""What services look up about ends: whether they were told, until when a lost instance was approved, what came back."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import GrantRow, Instance, Notification, Session
from ledger.states import NotificationKind, NotificationState, SessionState


async def unheard(tx: AsyncSession, kind: NotificationKind, subject: str, since: datetime) -> bool:
    """Whether something that was announced about `subject` at `since` has not yet been tried in some place.

    An attempt that failed makes the row due later; one that is under way holds a claim.
    """
    waiting = await tx.scalar(
        select(Notification.id)
        .where(
            Notification.kind == kind,
            Notification.subject == subject,
            Notification.state == NotificationState.PENDING,
            or_(Notification.due_at <= since, Notification.claim_token.is_not(None)),
        )
        .limit(1)
    )
    return waiting is not None


async def approved_ends(tx: AsyncSession, instance_ids: Collection[str]) -> dict[str, datetime]:
    """Until when what was approved for each of these instances runs; those whose session was ended are left out.

    A session that was asked again has no end of its own; then the grant's hours count from the send.
    """
    if not instance_ids:
        return {}
    rows = await tx.execute(
        select(Instance.id, Instance.sent_at, Instance.created_at, Session.deadline, GrantRow.hours)
        .join(Session, Session.id == Instance.session_id)
        .join(GrantRow, GrantRow.id == Instance.grant_id)
        .where(Instance.id.in_(list(instance_ids)))
        .where(
            or_(Session.state.not_in([SessionState.TERMINATING, SessionState.TERMINATED]), Session.end_code == "lost")
        )
    )
    found = {}
    for row in rows:
        granted = (row.sent_at or row.created_at) + timedelta(hours=float(Decimal(row.hours)))
        found[row.id] = max(granted, row.deadline or granted)
    return found
