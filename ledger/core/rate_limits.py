"""Share a cloud's rate limit among all replicas: each call takes a turn, in one statement of its own."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import case, select
from sqlalchemy.exc import SQLAlchemyError

from ledger.engine.db import Database
from ledger.models import TurnRow

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)

log = logging.getLogger(__name__)


class TurnsUnavailable(RuntimeError):
    """Say that the ledger cannot be reached now."""


async def take(
    db: Database, name: str, now: datetime, *, every: timedelta, ahead: timedelta, patience: timedelta
) -> tuple[timedelta, bool]:
    """Take the next turn of `name`: how long until then, and True; nothing is taken when that exceeds `patience`.

    Turns are `every` apart, but the first ones may come `ahead` of that. Raises `TurnsUnavailable`.
    """
    now_us, every_us, ahead_us = (_us(now), every // _US, ahead // _US)
    free = _free_from(now_us)
    insert = db.insert(TurnRow).values(name=name, free_at_us=now_us + every_us, written_at_us=now_us)
    statement = insert.on_conflict_do_update(
        index_elements=["name"],
        set_={"free_at_us": free + every_us, "written_at_us": now_us},
        where=free <= now_us + ahead_us + patience // _US,
    ).returning(TurnRow.free_at_us)
    try:
        async with db.write() as tx:
            taken = (await tx.execute(statement)).scalar()
            stored = select(free).where(TurnRow.name == name)
            free_at = taken if taken is not None else (await tx.execute(stored)).scalar_one() + every_us
    except (SQLAlchemyError, OSError) as error:
        raise TurnsUnavailable(str(type(error).__name__)) from error
    wait_us = max(free_at - every_us - ahead_us - now_us, 0)
    return timedelta(microseconds=wait_us), taken is not None


async def pause_until(db: Database, name: str, now: datetime, until: datetime) -> None:
    """Let no turn of `name` come before `until`. Raises `TurnsUnavailable`."""
    now_us, until_us = _us(now), _us(until)
    free = _free_from(now_us)
    insert = db.insert(TurnRow).values(name=name, free_at_us=until_us, written_at_us=now_us)
    statement = insert.on_conflict_do_update(
        index_elements=["name"],
        set_={"free_at_us": case((free < until_us, until_us), else_=free), "written_at_us": now_us},
    )
    try:
        async with db.write() as tx:
            await tx.execute(statement)
    except (SQLAlchemyError, OSError) as error:
        raise TurnsUnavailable(str(type(error).__name__)) from error


def _us(at: datetime) -> int:
    return (at - _EPOCH) // _US


def _free_from(now_us: int) -> Any:
    """Return when the group is free: now, where it is free already, else what was left when the row was written.

    A row that a clock wrote ahead of ours says how long to wait, and not until when.
    """
    stored, written = TurnRow.free_at_us, TurnRow.written_at_us
    left = case((written > now_us, now_us + stored - written), else_=stored)
    return case((left < now_us, now_us), else_=left)
