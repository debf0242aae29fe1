"""Keep the end of a network volume: its written end, or the end of its days of notices, never that of its amount."""

from __future__ import annotations

from datetime import datetime

from bot.rules.sessions.volume_end import volume_end
from bot.services.notifications import end_of_session
from bot.services.runtime.context import Context
from ledger.core import Tx, amend
from ledger.models import Session


def written_end(session: Session) -> datetime | None:
    """Return the end that was approved for a volume; of one of an earlier release, the end that was stored."""
    return session.volume_ends_at or session.deadline


async def set_end(ctx: Context, tx: Tx, session: Session, written: datetime, paid: datetime, now: datetime) -> None:
    """Store the end of a volume that its amounts pay for until `paid`, and announce it where it moved."""
    end = volume_end(written, paid, session.volume_grace_at, ctx.policy.volume_grace_days, now)
    begins_anew = end.grace_at is None or session.volume_grace_at is None or end.grace_at > now
    given = 0 if begins_anew else session.volume_notices
    await amend(tx, Session, session.id, volume_ends_at=written, volume_grace_at=end.grace_at, volume_notices=given)
    if end.deadline != session.deadline:
        await end_of_session.refresh(tx, session, now)
        await amend(tx, Session, session.id, deadline=end.deadline, due_at=now, warned_at=None)
