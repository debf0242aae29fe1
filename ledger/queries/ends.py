"""Read in one query what must end, and note which replicas can write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import and_, delete, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.must_end import MustEnd
from ledger.kernel.states import BILLABLE_INSTANCE, InstanceState, SessionState
from ledger.kernel.stored_job import StoredJob
from ledger.models import Consumer, Instance, Mark, Request, Session
from ledger.queries.recovery.older import Recovery, older_at, orphan_since

REPLICA = "replica/"
#: The last replica that stopped of its own accord, and the time of its last write.
STOPPED = "stopped replica"
#: A replica that wrote within this time counts as running.
ALIVE = timedelta(seconds=60)
#: What a replica notes about itself: it shows the newest request of a message. The release before noted nothing.
SHOWS_NEWEST = "shows the newest request of a message"


@dataclass(frozen=True, slots=True)
class ReplicaMark:
    """When a replica last wrote to the ledger. `has_stopped`: it stopped of its own accord."""

    replica: str
    at: datetime
    has_stopped: bool = False


async def must_end(
    tx: AsyncSession, checkpoint_of: Callable[[StoredJob], str | None], instance_id: str | None = None
) -> list[MustEnd]:
    """Return every instance that a cloud may bill and that a call can end, or that one; one query.

    `checkpoint_of` reads from a job where its checkpoints are.
    Among them are creates that were sent and whose reply is not stored: the ledger may take no write any more.
    """
    query = (
        select(Instance, Session, Request.job, orphan_since(), older_at(), Consumer.owner)
        .join(Session, Session.id == Instance.session_id)
        .join(Request, Request.id == Instance.request_id)
        .outerjoin(Consumer, Consumer.actor == Session.owner)
        .where(
            or_(
                and_(Instance.state.in_(list(BILLABLE_INSTANCE)), Instance.ref.is_not(None)),
                and_(Instance.state.in_([InstanceState.SENDING, InstanceState.UNKNOWN]), Instance.sent_at.is_not(None)),
            )
        )
        .order_by(Session.deadline, Instance.id)
    )
    if instance_id is not None:
        query = query.where(Instance.id == instance_id)
    return [_facts(row, session, checkpoint_of(job), *others) for row, session, job, *others in await tx.execute(query)]


def _facts(
    row: Instance,
    session: Session,
    checkpoint: str | None,
    orphan_seen_at: datetime | None,
    older_seen_at: datetime | None,
    behind: str | None,
) -> MustEnd:
    return MustEnd(
        instance_id=row.id,
        session_id=session.id,
        owner=behind or session.owner,
        cloud=row.cloud,
        account=row.account,
        ref=row.ref or "",
        label=row.label,
        name=row.name,
        state=row.state,
        status=row.status,
        deadline=session.deadline or _first_end(row, session),
        warned_at=session.warned_at,
        ordered_at=row.terminate_asked_at,
        accepted_at=row.terminate_acked_at,
        session_end=session.end_code if session.state is SessionState.TERMINATING else "",
        step=row.checkpoint_step,
        step_until=row.checkpoint_until,
        hold_s=row.hold_s,
        checkpoint=checkpoint,
        keep_disk=bool(session.preserve),
        used=row.reachable_at is not None or session.ready_at is not None,
        recovery_since=Recovery(0, orphan_seen_at, older_seen_at).since,
        request_id=session.request_id,
    )


def _first_end(row: Instance, session: Session) -> datetime | None:
    """Return the approved end of a first create, whose hours count from its send."""
    return row.sent_at + timedelta(hours=float(Decimal(session.hours))) if row.sent_at is not None else None


async def other_replicas(tx: AsyncSession, own: str, since: datetime) -> int:
    """Count the other replicas that wrote to this ledger since then."""
    others = (Mark.name.startswith(REPLICA), Mark.name != REPLICA + own, Mark.at >= since)
    return await tx.scalar(select(func.count()).select_from(Mark).where(*others)) or 0


async def replica_marks(tx: AsyncSession) -> list[ReplicaMark]:
    """List the marks of the replicas that wrote to this ledger, and of the last one that stopped; one query."""
    query = select(Mark).where(or_(Mark.name.startswith(REPLICA), Mark.name == STOPPED)).order_by(Mark.name)
    return [
        ReplicaMark(mark.value, mark.at, has_stopped=True)
        if mark.name == STOPPED
        else ReplicaMark(mark.name.removeprefix(REPLICA), mark.at)
        for mark in await tx.scalars(query)
    ]


async def shows_first_requests(tx: AsyncSession, now: datetime) -> bool:
    """Whether a replica runs whose release shows the first request of a message, and not the newest one."""
    older = (Mark.name.startswith(REPLICA), Mark.value == "", Mark.at >= now - ALIVE)
    return bool(await tx.scalar(select(exists().where(*older))))


async def note_replica(tx: AsyncSession, own: str, now: datetime, forget_before: datetime) -> None:
    """Note that a replica can write, and forget those that have not for a long time."""
    await tx.execute(delete(Mark).where(Mark.name.startswith(REPLICA), Mark.at < forget_before))
    insert = insert_for(tx, Mark).values(name=REPLICA + own, value=SHOWS_NEWEST, at=now)
    await tx.execute(insert.on_conflict_do_update(index_elements=["name"], set_={"at": now, "value": SHOWS_NEWEST}))


async def forget_replica(tx: AsyncSession, own: str) -> None:
    """Forget a replica that stops, and note until when it wrote."""
    forgotten = await tx.scalar(delete(Mark).where(Mark.name == REPLICA + own).returning(Mark.at))
    if forgotten is not None:
        insert = insert_for(tx, Mark).values(name=STOPPED, value=own, at=forgotten)
        values = {"at": forgotten, "value": own}
        is_later = Mark.at <= forgotten  # Of two that stop together, the last write counts.
        await tx.execute(insert.on_conflict_do_update(index_elements=["name"], set_=values, where=is_later))


async def stopped_at(tx: AsyncSession) -> datetime | None:
    """Return until when the replica wrote that stopped last of its own accord; None where none has."""
    return await tx.scalar(select(Mark.at).where(Mark.name == STOPPED))
