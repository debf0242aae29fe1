"""Note that the ledger is older than its records, and read what recovery mode waits for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.states import (
    LIVE_SESSION,
    OPEN_INSTANCE,
    GrantState,
    InstanceState,
    OrphanState,
)
from ledger.models import AdvanceApproval, Approval, GrantRow, Instance, Mark, Orphan, Request, Session

#: While this mark is there, nobody has accepted the ledger as it is. Its time is when its age was noticed.
OLDER = "recovery/older"
#: The ledger was accepted at this mark's time. Its value is when the age had been noticed, and a line for each record.
ACCEPTED = "recovery/accepted"
_UNKNOWN = (Orphan.state == OrphanState.QUARANTINED, Orphan.instance_id.is_(None))


class Recovery(NamedTuple):
    """Say what recovery mode waits for: unknown instances of ours, and an older ledger that nobody has accepted."""

    unknown: int = 0
    orphan_since: datetime | None = None
    older_since: datetime | None = None

    @property
    def since(self) -> datetime | None:
        """Return when recovery mode began; None while it is off."""
        return min((at for at in (self.orphan_since, self.older_since) if at is not None), default=None)

    def __bool__(self) -> bool:
        """Whether recovery mode is on."""
        return self.since is not None


def older_at() -> Any:
    """Build the subquery of when the ledger's age was noticed; NULL once somebody accepted it."""
    return select(Mark.at).where(Mark.name == OLDER).scalar_subquery()


def orphan_since() -> Any:
    """Build the subquery of when the first unknown instance that waits was seen; NULL where none waits."""
    return select(func.min(Orphan.first_seen_at)).where(*_UNKNOWN).scalar_subquery()


async def recovery(tx: AsyncSession) -> Recovery:
    """Return what recovery mode waits for: one statement."""
    orphans = select(func.count(), func.min(Orphan.first_seen_at), older_at()).select_from(Orphan).where(*_UNKNOWN)
    return Recovery(*(await tx.execute(orphans)).one())


async def older_mark(tx: AsyncSession) -> Mark | None:
    """Return the note that the ledger is older than its records, while nobody has accepted it."""
    return await tx.get(Mark, OLDER, populate_existing=True)


class Accepted(NamedTuple):
    """Say when operators accepted an older ledger, when its age had been noticed, and by which records.

    `records` has the time of the newest entry of each replica that named what the ledger lacks.
    """

    at: datetime
    noticed_at: datetime
    records: dict[str, datetime]


async def accepted(tx: AsyncSession) -> Accepted | None:
    """Return the last time that operators accepted an older ledger."""
    mark = await tx.get(Mark, ACCEPTED, populate_existing=True)
    return None if mark is None else _accepted(mark)


def _accepted(mark: Mark) -> Accepted:
    noticed_at, *records = mark.value.splitlines()
    by_replica = (line.split(" ", 1) for line in records)
    return Accepted(
        mark.at,
        datetime.fromisoformat(noticed_at),
        {replica: datetime.fromisoformat(at) for at, replica in by_replica},
    )


async def restored_at(tx: AsyncSession) -> datetime | None:
    """Return when it was last noticed that the ledger is an older one, whether or not it is accepted by now."""
    marks = {mark.name: mark for mark in await tx.scalars(select(Mark).where(Mark.name.in_([OLDER, ACCEPTED])))}
    if (open_one := marks.get(OLDER)) is not None:
        return open_one.at
    return _accepted(marks[ACCEPTED]).noticed_at if ACCEPTED in marks else None


async def note_older(tx: AsyncSession, text: str, at: datetime, *, is_dated_anew: bool = False) -> None:
    """Note that the ledger is older than its records, with what is known of it.

    A note that is there keeps its time, unless it `is_dated_anew`.
    """
    values = {"value": text, "at": at} if is_dated_anew else {"value": text}
    insert = insert_for(tx, Mark).values(name=OLDER, value=text, at=at)
    await tx.execute(insert.on_conflict_do_update(index_elements=["name"], set_=values))


async def note_accepted(tx: AsyncSession, noticed_at: datetime, at: datetime, records: Mapping[str, datetime]) -> bool:
    """Note that operators accept the ledger as it is. False when somebody else has done so meanwhile."""
    if (await tx.execute(delete(Mark).where(Mark.name == OLDER).returning(Mark.name))).first() is None:
        return False
    lines = [noticed_at.isoformat(), *(f"{newest.isoformat()} {replica}" for replica, newest in records.items())]
    values = {"value": "\n".join(lines), "at": at}
    insert = insert_for(tx, Mark).values(name=ACCEPTED, **values)
    await tx.execute(insert.on_conflict_do_update(index_elements=["name"], set_=values))
    return True


class Launch(NamedTuple):
    """An unsent launch whose approval is older than a time."""

    request_id: str
    session_id: str


async def launches_approved_before(tx: AsyncSession, at: datetime) -> list[Launch]:
    """Return the unsent launches whose approvals were decided before then, each session once."""
    query = (
        select(Instance.request_id, Instance.session_id)
        .join(GrantRow, GrantRow.id == Instance.grant_id)
        .join(Approval, Approval.id == GrantRow.approval_id)
        .where(Instance.state == InstanceState.READY, Approval.at < at)
        .order_by(Instance.request_id)
        .distinct()
    )
    return [Launch(*row) for row in await tx.execute(query)]


async def advances_before(tx: AsyncSession, at: datetime) -> list[str]:
    """Return the requests with an open approval in advance from before then."""
    mine = (AdvanceApproval.state == GrantState.OPEN, AdvanceApproval.at < at)
    return list(await tx.scalars(select(AdvanceApproval.request_id).where(*mine).distinct()))


async def missing_machines(tx: AsyncSession, at: datetime, unlisted: Collection[str]) -> list[str]:
    """Return live sessions older than that with a machine that its cloud's listing lacks, or at an unlisted cloud."""
    rows = await tx.execute(
        select(Session.id, Instance.absent_at, Instance.cloud)
        .join(Instance, Instance.session_id == Session.id)
        .where(Session.created_at < at, Session.state.in_(LIVE_SESSION), Instance.state.in_(OPEN_INSTANCE))
    )
    return sorted({session_id for session_id, absent_at, cloud in rows if absent_at or cloud in unlisted})


async def rows_of(tx: AsyncSession, instance_ids: Sequence[str]) -> tuple[dict[str, Instance], dict[str, Session]]:
    """Return the instances with these ids, and their sessions, by their ids."""
    instances = {row.id: row for row in await tx.scalars(select(Instance).where(Instance.id.in_(instance_ids)))}
    ids = {row.session_id for row in instances.values()}
    return instances, {row.id: row for row in await tx.scalars(select(Session).where(Session.id.in_(ids)))}


async def first_request_at(tx: AsyncSession) -> datetime | None:
    """Return when the first request of this ledger was made: only a process that works on it takes one."""
    return await tx.scalar(select(func.min(Request.created_at)))
