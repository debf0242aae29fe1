"""Write what is not a move, each guarded: money, columns of a row, and new requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core.locks import lock_family
from ledger.engine.db import insert_for
from ledger.kernel import money
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.ids import new_id
from ledger.models import Instance, LedgerEntry, Orphan, Request, Session

Tx = AsyncSession


async def amend(
    tx: Tx,
    model: type[Request | Session | Instance | Orphan],
    row_id: str,
    *,
    claim: str | None = None,
    version: int | None = None,
    **values: Any,
) -> bool:
    """Set columns of one row, never its state, under a claim or the version that was read. False: it was stale.

    Who writes under a version raises it, so of several replicas that have read the same row only one writes. What the
    others concluded from it, such as a further absence, they conclude anew from the row as it is then.
    """
    if "state" in values:
        raise TypeError("a state is changed only by ledger.core.moves.move")
    await lock_family(tx, model, row_id)
    where = [model.id == row_id]
    if claim is not None:
        where.append(model.claim_token == claim)  # type: ignore[union-attr] # Orphans have no claim and pass none.
    if version is not None:
        where.append(model.version == version)
        values["version"] = model.version + 1
    done = await tx.execute(update(model).where(*where).values(**values).returning(model.id))
    return done.first() is not None


async def add_request(tx: Tx, **values: Any) -> bool:
    """Store a request with these columns. False when its inbound message has made one already, here or elsewhere."""
    insert = insert_for(tx, Request).values(**values).on_conflict_do_nothing(index_elements=["inbox_key"])
    return (await tx.execute(insert.returning(Request.id))).first() is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """Describe one balanced entry to be booked: a positive amount in dollars that moves from `credit` to `debit`."""

    key: str
    kind: EntryKind
    debit: str
    credit: str
    amount_usd: Decimal
    at: datetime
    session_id: str | None = None
    instance_id: str | None = None
    component: str = ""
    note: str = ""


async def book(
    tx: Tx,
    *,
    key: str,
    kind: EntryKind,
    debit: str,
    credit: str,
    amount_usd: Decimal,
    at: datetime,
    session_id: str | None = None,
    instance_id: str | None = None,
    component: str = "",
    note: str = "",
) -> bool:
    """Book one balanced entry. False when `key` was booked before or the amount rounds to nothing.

    Raises ValueError for a negative amount: a correction is an entry in the other direction.
    """
    entry = NewEntry(
        key=key,
        kind=kind,
        debit=debit,
        credit=credit,
        amount_usd=amount_usd,
        at=at,
        session_id=session_id,
        instance_id=instance_id,
        component=component,
        note=note,
    )
    return await book_all(tx, [entry]) == 1


async def book_all(tx: Tx, entries: Sequence[NewEntry]) -> int:
    """Book many entries in few statements, as `book` does one; returns how many of them are new."""
    if any(entry.amount_usd < 0 for entry in entries):
        raise ValueError("an entry moves a positive amount; book a correction in the other direction")
    rows = [
        {"id": new_id("led", entry.at), **{name: getattr(entry, name) for name in _ENTRY}}
        for entry in entries
        if money.amount(entry.amount_usd) > 0
    ]
    if not rows:
        return 0
    added = insert_for(tx, LedgerEntry.__table__).on_conflict_do_nothing(index_elements=["key"])
    return len((await tx.execute(added.returning(LedgerEntry.__table__.c.id), rows)).all())


_ENTRY = tuple(one.name for one in fields(NewEntry))
