"""Write the journal and the outbox in the transaction of the change that they describe."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import or_, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import dialect_insert, insert_for
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.kernel.secret_shapes import without_signatures, without_signatures_in
from ledger.kernel.states import NotificationKind, NotificationState
from ledger.models import Event, Notification

#: What makes a notification the same one: where it is shown, and about what.
UNIQUE = ("kind", "subject", "destination")
_NEWEST = "newest event"


def record(
    tx: AsyncSession,
    at: datetime,
    actor: Actor,
    subject: str,
    kind: EventKind,
    *,
    before: str = "",
    after: str = "",
    reason: str = "",
    data: dict[str, Any] | None = None,
    key: str = "",
) -> None:
    """Add one journal row. `kind` is the table's noun and a verb: `instance.moved`, `key.added`.

    The signatures of addresses are masked, because it is never changed again and many people read it.

    `key` names the call that did it, where it may come again: `queries.journal.noted_before` finds the row by it.
    """
    event = Event(
        id=new_id("evt", at),
        at=at,
        actor=actor.ref,
        subject=subject,
        kind=kind,
        before=before,
        after=after,
        reason=without_signatures(reason),
        data={**without_signatures_in(data or {}), **({"key": key} if key else {})},
    )
    tx.add(event)
    tx.info[_NEWEST] = event


def newest_event(tx: AsyncSession) -> Event | None:
    """Return the event that a transaction recorded last; None where it recorded none."""
    event: Event | None = tx.info.get(_NEWEST)
    return event


async def announce_once(
    tx: AsyncSession, at: datetime, kind: NotificationKind, subject: str, *, destination: str, body: dict[str, Any]
) -> bool:
    """Make a notification due unless there is one already, here or at another replica. True when it is new."""
    insert = insert_for(tx, Notification.__table__).on_conflict_do_nothing(index_elements=UNIQUE)
    row = _row(at=at, kind=kind, subject=subject, destination=destination, body=body)
    return (await tx.execute(insert.returning(Notification.__table__.c.id), row)).first() is not None


async def announce(
    tx: AsyncSession,
    at: datetime,
    kind: NotificationKind,
    subject: str,
    *,
    destination: str,
    body: dict[str, Any] | None = None,
) -> None:
    """Make a notification due: a new row, or the next version of the one that is already shown.

    One row per (kind, subject, destination), so announcing again updates the message that people see. A claim that is
    being served keeps its lease: it sends the version it read, and the higher version makes the row due again.
    """
    row = _row(at=at, kind=kind, subject=subject, destination=destination, body=body or {})
    await tx.execute(_announcing(tx.get_bind().dialect.name), row)


@cache
def _announcing(dialect: str) -> Any:
    """Build the statement of `announce` for a dialect. Built once, because most that happens is announced."""
    table = Notification.__table__
    insert = dialect_insert(dialect, table)
    return insert.on_conflict_do_update(
        index_elements=UNIQUE,
        set_={
            "version": table.c.version + 1,
            "state": NotificationState.PENDING,
            "due_at": insert.excluded.due_at,
            "body": insert.excluded.body,
        },
    )


async def announce_again(tx: AsyncSession, at: datetime, kinds: Collection[NotificationKind], subject: str) -> None:
    """Make what is shown about a subject due again, so that it is edited to what has become of it.

    The subjects of such messages begin with the id of their session or request. What nobody was shown stays as it is.
    """
    mine = or_(Notification.subject == subject, Notification.subject.startswith(f"{subject}/", autoescape=True))
    there = (Notification.kind.in_(kinds), mine, Notification.sent_version > 0)
    again = {"version": Notification.version + 1, "state": NotificationState.PENDING, "due_at": at}
    await tx.execute(update(Notification).where(*there).values(again))


def _row(*, at: datetime, **values: Any) -> dict[str, Any]:
    new = {"version": 1, "sent_version": 0, "tries": 0, "error": "", "created_at": at, "due_at": at}
    return {"id": new_id("ntf", at), "state": NotificationState.PENDING, **new, **values}
