"""Store the end of a network volume: its written end, or the end of its days of notices. Its amount sets no end.

A volume that something mounts is not deleted at its end; people are notified of what mounts it.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from bot.rules.sessions.volume_end import unpaid_time, volume_end
from bot.services.notifications import end_of_session
from bot.services.notifications.paging import page, page_with_owner
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, notifications_of
from ledger.kernel.states import NotificationKind
from ledger.kernel.volume_name import volume_of
from ledger.models import Instance, Orphan, Session
from providers.errors import InUse, ProviderError


def written_end(session: Session) -> datetime | None:
    """Return the approved end of a volume. A volume of an earlier release has only its stored end."""
    return session.volume_ends_at or session.deadline


async def set_end(
    ctx: Context, tx: Tx, session: Session, price_usd_h: Decimal, written: datetime, paid: datetime, now: datetime
) -> None:
    """Store the end of a volume whose amounts pay until `paid`, and announce the end if it moved."""
    excess_usd = session.volume_excess_usd if session.volume_excess_usd is not None else ctx.policy.volume_excess_usd
    unpaid = unpaid_time(excess_usd, price_usd_h)
    end = volume_end(written, paid, session.volume_grace_at, ctx.policy.volume_grace_days, now, unpaid)
    begins_anew = end.grace_at is None or session.volume_grace_at is None or end.grace_at > now
    given = 0 if begins_anew else session.volume_notices
    limit_usd = excess_usd if end.grace_at is not None else None
    limit: dict[str, Any] = {"volume_excess_usd": limit_usd}
    await amend(
        tx, Session, session.id, volume_ends_at=written, volume_grace_at=end.grace_at, volume_notices=given, **limit
    )
    if end.deadline != session.deadline:
        await end_of_session.refresh(tx, session, now)
        await amend(tx, Session, session.id, deadline=end.deadline, due_at=now, warned_at=None)


async def notify_in_use(ctx: Context, row: Instance, error: ProviderError) -> None:
    """Notify the owner and the operators once of what mounts a volume that is to be deleted.

    The deletion is tried again. People can't change the cause of any other error.
    """
    if not isinstance(error, InUse):
        return
    subject, now = f"{row.id}/in-use", ctx.clock.now()
    async with ctx.db.write() as tx:
        if await notifications_of(tx, NotificationKind.OPERATOR_PAGE, subject):
            return
        session = await tx.get_one(Session, row.session_id)
        name = volume_of(session.gpu)
        said = f"Volume {name} isn't deleted yet: {error.message}. It is deleted once nothing uses it."
        await page_with_owner(tx, ctx.policy, session, subject, said, now)
    ctx.hints.outbox.set()


async def notify_operators_in_use(ctx: Context, orphan: Orphan, error: ProviderError) -> None:
    """Notify the operators of what mounts a volume without a session that is to be deleted."""
    if isinstance(error, InUse):
        await page(ctx, f"{orphan.id}/in-use", f"{orphan.cloud} still has {orphan.ref}: {error.message}.")
