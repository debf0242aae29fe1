"""Claim rows: take the right to work on one until a time, on both databases and with any number of replicas.

Find due ids, lock them with `FOR UPDATE SKIP LOCKED` (SQLite's write transaction needs no lock), set a token and an
expiry on those that are still due, commit, work outside any transaction, and apply the result guarded by the token. A
replica that dies leaves a claim that expires; a replica that pauses finds its token replaced.

A claimed row is due again when its lease ends. If something makes it due earlier meanwhile, giving the row back keeps
that earlier time, so that what happened during the work is handled at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, case, func, or_, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.dml import ReturningUpdate

from ledger.engine.db import Database, may_lock
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


def _is_due(model: type[Any], states: Collection[Any], now: Any) -> tuple[ColumnElement[bool], ...]:
    free = or_(model.claim_until.is_(None), model.claim_until <= now)
    return (model.state.in_(list(states)), model.due_at <= now, free)


@lru_cache(maxsize=64)
def _due(model: type[Any], states: frozenset[Any]) -> Select[Any]:
    """Build the statement that finds at most `most` rows that are due at `now`.

    Built once, because every tick asks for every kind.
    """
    key = _key(model)
    due = select(key).where(*_is_due(model, states, bindparam("now")))
    return due.order_by(model.due_at, key).limit(bindparam("most", type_=Integer))


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
    return [held for held, _ in await _claimed(db, model, (), now, states, limit, lease)]


async def claim_rows(
    db: Database,
    model: type[Model],
    *,
    now: datetime,
    states: Collection[Any],
    limit: int,
    lease: timedelta,
) -> list[tuple[Claim, Model]]:
    """Claim like `claim`, and return each row as its claim left it, so that it need not be read again."""
    return [(held, row) for held, (row, *_) in await _claimed(db, model, (model,), now, states, limit, lease)]


async def _claimed(
    db: Database,
    model: type[Model],
    wanted: tuple[Any, ...],
    now: datetime,
    states: Collection[Any],
    limit: int,
    lease: timedelta,
) -> list[tuple[Claim, Any]]:
    due, asked = _due(model, frozenset(states)), {"now": now, "most": limit}
    async with db.read() as tx:
        ids = list(await tx.scalars(due, asked))
    if not ids:
        return []  # Most ticks find nothing; looking first keeps an idle process from writing at all.
    async with db.write() as tx:
        if may_lock(tx):
            ids = list(await tx.scalars(due.with_for_update(skip_locked=True), asked))
        return await _take(tx, _taking_due(model, frozenset(states), wanted), ids, now + lease, now=now)


@lru_cache(maxsize=64)
def _taking_due(model: type[Any], states: frozenset[Any], wanted: tuple[Any, ...]) -> ReturningUpdate[Any]:
    """Build the statement that claims rows which are still due at `now`. Built once, as `_due`."""
    return _taking(model, wanted, *_is_due(model, states, bindparam("now")))


def _taking(model: type[Any], wanted: Sequence[Any], *still: ColumnElement[bool]) -> ReturningUpdate[Any]:
    """Build the statement that claims those of some rows of which `still` holds, and returns what is `wanted` of each.

    Another may have taken one since it was found. A row that had a token gets another one than a free row, so that the
    one statement also says what was taken over.
    """
    key, text = _key(model), model.claim_token.type
    free, over = bindparam("free", type_=text), bindparam("over", type_=text)
    until = bindparam("until", type_=model.claim_until.type)
    token = case((model.claim_token.is_(None), free), else_=over)
    return (
        update(model)
        .where(key.in_(bindparam("ids", expanding=True)), *still)
        .values(claim_token=token, claim_until=until, due_at=until)
        .returning(*wanted, key.label("claimed_key"), model.claim_token.label("claimed_by"))
        .execution_options(synchronize_session=False)
    )


async def _take(
    tx: AsyncSession, taking: ReturningUpdate[Any], ids: Sequence[str], until: datetime, **asked: Any
) -> list[tuple[Claim, Any]]:
    """Claim those of these rows that can still be claimed, in their order."""
    if not ids:
        return []
    free, over = hex_token(), hex_token()
    taken = await tx.execute(taking, {"ids": list(ids), "until": until, "free": free, "over": over, **asked})
    found = {row.claimed_key: row for row in taken.all()}
    return [
        (Claim(row_id, found[row_id].claimed_by, found[row_id].claimed_by == over), found[row_id])
        for row_id in ids
        if row_id in found
    ]


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
    async with db.write() as tx:
        if may_lock(tx):
            chosen = select(row.id).where(row.id.in_(ids), due)
            ids = list(await tx.scalars(chosen.with_for_update(skip_locked=True)))
        return [held for held, _ in await _take(tx, _taking(row, (), due), ids, now + lease)]


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
