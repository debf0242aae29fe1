"""Record deliveries in the outbox: where each notification is shown, and whether it was sent.

Notifications are made by `ledger.core.events`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core.claims import Claim
from ledger.kernel.states import NotificationKind, NotificationState
from ledger.models import Notification, Request


async def message_of(tx: AsyncSession, request_id: str, destination: str) -> Notification | None:
    """Return the message in a channel that shows, or showed, a request: where its thread replies go."""
    card_of = select(Request.card_of).where(Request.id == request_id).scalar_subquery()
    return await tx.scalar(
        select(Notification).where(
            Notification.kind == NotificationKind.REQUEST_MESSAGE,
            Notification.subject == func.coalesce(card_of, request_id),
            Notification.destination == destination,
        )
    )


async def notification_of(
    tx: AsyncSession, kind: NotificationKind, subject: str, destination: str
) -> Notification | None:
    """Return one row of the outbox by what makes it unique."""
    return await tx.scalar(
        select(Notification).where(
            Notification.kind == kind, Notification.subject == subject, Notification.destination == destination
        )
    )


async def notifications_of(tx: AsyncSession, kind: NotificationKind, subject: str) -> list[Notification]:
    """Return the notifications of one kind about one subject, wherever they are shown."""
    found = select(Notification).where(Notification.kind == kind, Notification.subject == subject)
    return list(await tx.scalars(found.order_by(Notification.id)))


async def notification_sent(
    tx: AsyncSession, held: Claim, *, version: int, channel: str, ts: str | None, at: datetime
) -> None:
    """Record where a notification is shown. A version announced meanwhile leaves the row due again."""
    await _settle(
        tx, held, version, {"sent_version": version, "channel": channel, "ts": ts, "sent_at": at, "error": ""}
    )


async def notification_dead(tx: AsyncSession, held: Claim, *, version: int, error: str) -> None:
    """Give a notification up for a reason that no later attempt changes. A newer version is tried all the same."""
    await _settle(tx, held, version, {"error": error}, NotificationState.DEAD)


async def _settle(
    tx: AsyncSession,
    held: Claim,
    version: int,
    values: dict[str, Any],
    state: NotificationState = NotificationState.SENT,
) -> None:
    free: dict[str, Any] = {"claim_token": None, "claim_until": None, "tries": 0}
    mine = (Notification.id == held.row_id, Notification.claim_token == held.token)
    done: Any = await tx.execute(
        update(Notification)
        .where(*mine, Notification.version == version)
        .values(**values, **free, state=state, due_at=None)
    )
    if not done.rowcount:  # A newer version was announced meanwhile, so it stays due; or the claim was lost.
        await tx.execute(update(Notification).where(*mine).values(**values, **free))
