"""Read the whole ledger consistently, for auditing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import func, inspect, select

from ledger.engine.db import Database
from ledger.models import (
    AdvanceApproval,
    Approval,
    CommandClaim,
    CommandResult,
    Event,
    EventOrder,
    GraceRow,
    GrantRow,
    Inbox,
    Instance,
    LedgerEntry,
    MachineKey,
    Migration,
    Node,
    Notification,
    Option,
    Orphan,
    Quote,
    Request,
    ResumePoint,
    Session,
    SessionCredential,
    Share,
    Transfer,
    WaitLimits,
)
from ledger.models.base import Base

Row = TypeVar("Row", bound=Base)


@dataclass(frozen=True, slots=True)
class Books:
    """Hold every row that an audit looks at, detached. Meant for tests, demos and small ledgers: it is read whole."""

    requests: tuple[Request, ...]
    quotes: tuple[Quote, ...]
    options: tuple[Option, ...]
    approvals: tuple[Approval, ...]
    grants: tuple[GrantRow, ...]
    sessions: tuple[Session, ...]
    instances: tuple[Instance, ...]
    orphans: tuple[Orphan, ...]
    entries: tuple[LedgerEntry, ...]
    events: tuple[Event, ...]
    notifications: tuple[Notification, ...]
    inbox: tuple[Inbox, ...]
    order: tuple[EventOrder, ...]
    advances: tuple[AdvanceApproval, ...] = ()
    wait_limits: tuple[WaitLimits, ...] = ()
    nodes: tuple[Node, ...] = ()
    migrations: tuple[Migration, ...] = ()
    results: tuple[CommandResult, ...] = ()
    claims: tuple[CommandClaim, ...] = ()
    resume_points: tuple[ResumePoint, ...] = ()
    graces: tuple[GraceRow, ...] = ()
    machine_keys: tuple[MachineKey, ...] = ()
    shares: tuple[Share, ...] = ()
    credentials: tuple[SessionCredential, ...] = ()
    transfers: tuple[Transfer, ...] = ()

    def rows(self) -> Iterator[Any]:
        """Yield every row of every table."""
        for item in fields(self):
            yield from getattr(self, item.name)


async def read_books(db: Database) -> Books:
    """Read everything in one consistent state, each table in the order of its primary key."""
    async with db.read() as tx:

        async def table(model: type[Row]) -> tuple[Row, ...]:
            key: Any = inspect(model)
            return tuple((await tx.scalars(select(model).order_by(*key.primary_key))).all())

        return Books(
            await table(Request),
            await table(Quote),
            await table(Option),
            await table(Approval),
            await table(GrantRow),
            await table(Session),
            await table(Instance),
            await table(Orphan),
            await table(LedgerEntry),
            await table(Event),
            await table(Notification),
            await table(Inbox),
            await table(EventOrder),
            await table(AdvanceApproval),
            await table(WaitLimits),
            await table(Node),
            await table(Migration),
            await table(CommandResult),
            await table(CommandClaim),
            await table(ResumePoint),
            await table(GraceRow),
            await table(MachineKey),
            await table(Share),
            await table(SessionCredential),
            await table(Transfer),
        )


async def ping(db: Database) -> None:
    """Return when the ledger answers a query; raise the error that keeps it from that."""
    async with db.read() as tx:
        await tx.execute(select(1))


async def database_time(db: Database) -> datetime | None:
    """Return the database's own time; None where it has no clock besides this machine's (SQLite)."""
    if db.dialect == "sqlite":
        return None
    async with db.read() as tx:
        found: datetime = (await tx.execute(select(func.clock_timestamp()))).scalar_one()
        return found


def values_of(row: Any) -> dict[str, Any]:
    """Return the columns of one row by name, as Python values."""
    return {attribute.key: getattr(row, attribute.key) for attribute in inspect(type(row)).column_attrs}
