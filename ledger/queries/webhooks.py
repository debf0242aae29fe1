"""Read and write webhooks and their deliveries: look up, make from the journal, replay, delete."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.actor import ActorKind
from ledger.kernel.states import NotificationState
from ledger.models import ApiKey, Webhook, WebhookDelivery
from ledger.queries.access import Whose


async def webhook(tx: AsyncSession, webhook_id: str, whose: Whose | None) -> Webhook | None:
    """Return one webhook, when it belongs to one of these names (None: to anybody)."""
    found = await tx.get(Webhook, webhook_id)
    return found if found is not None and (whose is None or found.actor in whose) else None


async def webhooks(tx: AsyncSession, whose: Whose | None) -> list[Webhook]:
    """Return the webhooks of one person's names, or all of them; the oldest first."""
    query = select(Webhook).order_by(Webhook.id)
    return list(await tx.scalars(query if whose is None else query.where(whose.where(Webhook.actor))))


async def count_webhooks(tx: AsyncSession, actor: str) -> int:
    """Count the webhooks of a holder."""
    return await tx.scalar(select(func.count()).select_from(Webhook).where(Webhook.actor == actor)) or 0


async def listening(tx: AsyncSession, now: datetime, actor: str | None = None) -> list[Webhook]:
    """Return the webhooks that are switched on and may receive events, of everybody or of one holder.

    A holder without a working key receives nothing, except an operator who never had one: on the server nobody needs a
    key, and a person who may run commands there may read the ledger. From the first key on, the keys' scopes decide.
    """
    working = select(ApiKey.actor).where(ApiKey.revoked_at.is_(None), ApiKey.expires_at > now)
    keyless = and_(Webhook.actor.like(f"{ActorKind.OPERATOR}:%"), Webhook.actor.not_in(select(ApiKey.actor)))
    query = select(Webhook).where(Webhook.off_at.is_(None), or_(keyless, Webhook.actor.in_(working)))
    if actor is not None:
        query = query.where(Webhook.actor == actor)
    return list(await tx.scalars(query.order_by(Webhook.id)))


async def scopes_of_holders(tx: AsyncSession, actors: Collection[str], now: datetime) -> dict[str, set[str] | None]:
    """Return the scopes of all working keys of each of these holders; None for one who never had a key."""
    keys = select(ApiKey.actor, ApiKey.scopes, ApiKey.revoked_at, ApiKey.expires_at)
    found: dict[str, set[str] | None] = dict.fromkeys(actors)
    for key in await tx.execute(keys.where(ApiKey.actor.in_(sorted(actors)))):
        works = key.revoked_at is None and key.expires_at > now
        found[key.actor] = (found[key.actor] or set()) | set(key.scopes if works else ())
    return found


async def add_deliveries(tx: AsyncSession, rows: Sequence[dict[str, Any]]) -> int:
    """Store deliveries; one that another replica has made meanwhile is left out. Returns how many are new."""
    if not rows:
        return 0
    insert = insert_for(tx, WebhookDelivery).values(list(rows))
    insert = insert.on_conflict_do_nothing(index_elements=["webhook_id", "event_id"])
    return len((await tx.execute(insert.returning(WebhookDelivery.id))).all())


async def read_until(tx: AsyncSession, webhook_id: str, position: int) -> None:
    """Note that the journal was read for a webhook up to this position."""
    behind = update(Webhook).where(Webhook.id == webhook_id, Webhook.position < position)
    await tx.execute(behind.values(position=position))


async def deliveries(
    tx: AsyncSession, webhook_id: str, *, failed: bool, before: str | None, limit: int
) -> list[WebhookDelivery]:
    """Return the deliveries of a webhook, the newest first; only those that were given up when `failed`."""
    query = select(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id)
    if failed:
        query = query.where(WebhookDelivery.state == NotificationState.DEAD)
    if before is not None:
        query = query.where(WebhookDelivery.id < before)
    return list(await tx.scalars(query.order_by(WebhookDelivery.id.desc()).limit(limit)))


async def again(tx: AsyncSession, webhook_id: str, delivery_id: str | None, at: datetime) -> int:
    """Make one delivery due, or all that were given up. Returns how many there were."""
    which = WebhookDelivery.state == NotificationState.DEAD
    if delivery_id is not None:
        which = WebhookDelivery.id == delivery_id
    due = update(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id, which)
    done = due.values(state=NotificationState.PENDING, tries=0, due_at=at).returning(WebhookDelivery.id)
    return len((await tx.execute(done)).all())


async def remove(tx: AsyncSession, webhook_id: str) -> None:
    """Delete a webhook with everything that was to be sent to it."""
    await tx.execute(delete(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id))
    await tx.execute(delete(Webhook).where(Webhook.id == webhook_id))


async def forget(tx: AsyncSession, before: datetime) -> int:
    """Delete finished deliveries that are older than this; returns how many there were."""
    over = WebhookDelivery.state != NotificationState.PENDING
    gone = delete(WebhookDelivery).where(over, WebhookDelivery.created_at < before).returning(WebhookDelivery.id)
    return len((await tx.execute(gone)).all())
