"""Claim rows: take the right to work on one until a time, on both databases and with any number of replicas.

Select due ids with `FOR UPDATE SKIP LOCKED` (SQLite's write transaction needs no lock), set a token and an expiry,
commit, work outside any transaction, and apply the result guarded by the token. A replica that dies leaves a claim that
expires; a replica that pauses finds its token replaced.

A claimed row is due again when its lease ends. If something makes it due earlier meanwhile, giving the row back keeps
that earlier time, so that what happened during the work is handled at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Integer, Select, and_, bindparam, case, func, or_, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import Database
from ledger.kernel.ids import hex_token
from ledger.kernel.states import NotificationState
from ledger.models import MOVABLE, Inbox, Instance, Notification, Request, Session, WebhookDelivery

Model = TypeVar("Model", Request, Session, Instance, Notification, Inbox, WebhookDelivery)


@dataclass(frozen=True, slots=True)
class Claim:
    """Hold the right to work on `row_id` until the lease ends; every result is applied under `token`.

    `taken_over` says that another replica's claim ran out: what it did with the row is not known.
    """

    row_id: str
    token: str
    taken_over: bool = False


def _key(model: type[Any]) -> Any:
    return model.key if model is Inbox else model.id


@lru_cache(maxsize=64)
def _due(model: type[Any], states: frozenset[Any]) -> tuple[Select[Any], Select[Any]]:
    """Build the two statements: whether any row is due at `now`, and which ones, `most` at most.

    Built once, because every tick asks for every kind.
    """
    key = _key(model)
    due = (
        select(key.label("id"), model.claim_token.label("held"))
        .where(
            model.state.in_(list(states)),
            model.due_at <= bindparam("now"),
            or_(model.claim_until.is_(None), model.claim_until <= bindparam("now")),
        )
        .order_by(model.due_at, key)
    )
    return due.limit(1), due.limit(bindparam("most", type_=Integer)).with_for_update(skip_locked=True)


async def claim(
    db: Database,
    model: type[Model],
    *,
    now: datetime,
    states: Collection[Any],
    limit: int,
    lease: timedelta,
) -> list[Claim]:
    """Claim at most `limit` due rows of `model` in one of `states`, the longest overdue first."""
    look, take = _due(model, frozenset(states))
    async with db.read() as tx:
        if (await tx.execute(look, {"now": now})).first() is None:
            return []  # Most ticks find nothing; looking first keeps an idle process from writing at all.
    async with db.write() as tx:
        before = {row.id: row.held for row in await tx.execute(take, {"now": now, "most": limit})}
        return await _take(tx, model, before, now + lease)


async def _take(tx: AsyncSession, model: type[Any], before: Mapping[str, str | None], until: datetime) -> list[Claim]:
    """Claim rows that are locked; `before` gives the token that each had."""
    if not before:
        return []
    key, token = _key(model), hex_token()
    taken = await tx.execute(
        update(model)
        .where(key.in_(list(before)))
        .values(claim_token=token, claim_until=until, due_at=until)
        .returning(key)
    )
    found = set(taken.scalars())
    return [Claim(row_id, token, held is not None) for row_id, held in before.items() if row_id in found]


async def claim_deliveries(db: Database, *, now: datetime, share: int, limit: int, lease: timedelta) -> list[Claim]:
    """Claim at most `limit` due deliveries so that each webhook has at most `share` under way.

    The first of each webhook come before the second of any: a webhook with many messages delays no other. Two replicas
    that claim at the same moment may exceed a webhook's share for one batch.
    """
    row = WebhookDelivery
    running = row.claim_until > now
    pending = and_(row.state == NotificationState.PENDING, or_(row.due_at <= now, and_(row.due_at > now, running)))
    first = (case((running, 0), else_=1), row.due_at, row.id)
    place = func.row_number().over(partition_by=row.webhook_id, order_by=first)
    ranked = select(row.id, row.due_at, running.label("running"), place.label("place")).where(pending).subquery()
    due = and_(row.state == NotificationState.PENDING, row.due_at <= now, or_(row.claim_until.is_(None), ~running))
    wanted = (
        select(ranked.c.id)
        .where(ranked.c.place <= share, or_(ranked.c.running.is_(None), ~ranked.c.running))
        .order_by(ranked.c.place, ranked.c.due_at, ranked.c.id)
        .limit(limit)
    )
    async with db.read() as tx:
        ids = list(await tx.scalars(wanted))
    if not ids:
        return []
    chosen = select(row.id, row.claim_token.label("held")).where(row.id.in_(ids), due)
    async with db.write() as tx:
        before = {one.id: one.held for one in await tx.execute(chosen.with_for_update(skip_locked=True))}
        return await _take(tx, row, before, now + lease)


async def release(tx: AsyncSession, model: type[Model], held: Claim, *, due_at: datetime | None, **values: Any) -> bool:
    """Give the row back with its next due time (None: nothing is left to do) and further column values.

    A row that was made due during the claim stays due at that time, if it is earlier. False when the claim was lost
    meanwhile: then nothing was written, and the work's result must be discarded.
    """
    if "state" in values and model in MOVABLE:
        raise TypeError("a state is changed only by ledger.core.moves.move")
    woken = model.due_at < model.claim_until
    if due_at is not None:
        woken = and_(woken, model.due_at < due_at)
    result = await tx.execute(
        update(model)
        .where(_key(model) == held.row_id, model.claim_token == held.token)
        .values(claim_token=None, claim_until=None, due_at=case((woken, model.due_at), else_=due_at), **values)
        .returning(_key(model))
    )
    return result.first() is not None


async def wake(tx: AsyncSession, model: type[Model], row_id: str, at: datetime) -> None:
    """Make a row due at `at` unless it is due earlier."""
    await tx.execute(
        update(model).where(_key(model) == row_id, or_(model.due_at.is_(None), model.due_at > at)).values(due_at=at)
    )


async def next_due(db: Database, after: datetime) -> datetime | None:
    """Return when a request, a session, an instance or a message is due next after then; None when nothing is."""
    tables: tuple[Any, ...] = (Request, Session, Instance, Notification)
    soonest = union_all(*(select(func.min(one.due_at)).where(one.due_at > after) for one in tables))
    async with db.read() as tx:
        return min((found for found in (await tx.execute(soonest)).scalars() if found is not None), default=None)
