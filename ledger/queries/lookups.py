"""Look up rows inside a transaction by what they belong to, in a fixed number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import first_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import (
    OPEN_INSTANCE,
    UNDECIDED,
    GrantState,
    InstanceState,
    OrphanState,
    RequestState,
    SessionState,
)
from ledger.kernel.stored_job import StoredJob
from ledger.models import (
    AdvanceApproval,
    GrantRow,
    Instance,
    Option,
    Orphan,
    Quote,
    Request,
    Session,
    SshKey,
    WaitLimits,
)
from ledger.queries.access import Whose
from ledger.queries.people.credentials import secrets_named

#: While its request is in one of these, an approval in advance reserves budget.
RESERVES = frozenset({RequestState.WAITING, RequestState.QUOTING})


async def current_quote(tx: AsyncSession, request: Request) -> Quote | None:
    """Return the quote of the request's current version."""
    return await tx.scalar(select(Quote).where(Quote.request_id == request.id, Quote.version == request.quote_version))


async def override_of(tx: AsyncSession, request_id: str) -> Request | None:
    """Return the newest override request that belongs to a request above the 12-hour cap."""
    mine = select(Request).where(Request.parent_id == request_id, Request.kind == RequestKind.OVERRIDE_12H)
    return await tx.scalar(mine.order_by(Request.created_at.desc(), Request.id.desc()).limit(1))


async def failed_machines(tx: AsyncSession, codes: Collection[str], since: datetime) -> set[tuple[str, str]]:
    """Return cloud and machine of the instances that were made since then and ended for one of these reasons."""
    mine = (Instance.id >= first_id("ins", since), Instance.outcome_code.in_(codes), Instance.machine_id.is_not(None))
    rows: Any = await tx.execute(select(Instance.cloud, Instance.machine_id).where(*mine).distinct())
    return {(cloud, machine_id) for cloud, machine_id in rows}


async def past_on_hosts(tx: AsyncSession, since: datetime, most: int) -> list[Any]:
    """Return what became of the newest instances on known hosts, made since then: at most so many, in one query."""
    columns: Any = (
        Instance.cloud,
        Instance.machine_id,
        Instance.outcome_code,
        Instance.reachable_at,
        func.coalesce(Instance.billing_until, Instance.ended_at),
        Instance.gpu_booked_s,
        Instance.gpu_check,
    )
    mine = (Instance.id >= first_id("ins", since), Instance.machine_id.is_not(None))
    return [*(await tx.execute(select(*columns).where(*mine).order_by(Instance.id.desc()).limit(most))).all()]


async def waiting_extensions(tx: AsyncSession, request_id: str) -> list[Request]:
    """Return undecided requests for more time for the session of a request."""
    mine = (Request.parent_id == request_id, Request.kind == RequestKind.EXTEND, Request.state == RequestState.PENDING)
    return list(await tx.scalars(select(Request).where(*mine)))


async def open_starts(tx: AsyncSession, session_id: str) -> list[GrantRow]:
    """Return unused grants to start a stopped session again."""
    mine = (GrantRow.session_id == session_id, GrantRow.kind == GrantKind.START, GrantRow.state == GrantState.OPEN)
    return list(await tx.scalars(select(GrantRow).where(*mine)))


async def billed_since(tx: AsyncSession, session_id: str) -> datetime | None:
    """Return the first moment that a cloud may have billed a session: its first create that was not refused."""
    found: datetime | None = await tx.scalar(_first_billed().where(Instance.session_id == session_id))
    return found


def _first_billed() -> Any:
    refused = [InstanceState.REJECTED, InstanceState.TOMBSTONE]
    return select(func.min(Instance.sent_at)).where(Instance.state.not_in(refused))


async def session_and_its_bill(tx: AsyncSession, session_id: str) -> tuple[Session, datetime]:
    """Return a session, and from when a cloud may bill it: `billed_since`, or when it was made. NoResultFound."""
    since = _first_billed().where(Instance.session_id == Session.id).scalar_subquery()
    found: Any = await tx.execute(select(Session, since).where(Session.id == session_id))
    session, began_at = found.one()
    return session, began_at or session.created_at


async def lives_of(tx: AsyncSession, session_id: str) -> list[tuple[str, datetime, datetime | None]]:
    """List `(approval, sent, ended)` of every instance that a cloud may have billed; an open one ends at None."""
    over = func.coalesce(Instance.billing_until, Instance.ended_at)
    query: Any = select(GrantRow.approval_id, Instance.sent_at, over).join(Instance, Instance.grant_id == GrantRow.id)
    sent = (Instance.session_id == session_id, Instance.sent_at.is_not(None))
    never = Instance.state.in_([InstanceState.REJECTED, InstanceState.TOMBSTONE])
    return [(of, at, until) for of, at, until in (await tx.execute(query.where(*sent, ~never))).all()]


async def session_of(tx: AsyncSession, request_id: str) -> Session | None:
    """Return the session that a request led to."""
    return await tx.scalar(select(Session).where(Session.request_id == request_id))


async def session_states(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, SessionState]:
    """Return the state of the session of each of these requests that led to one, in one query."""
    query: Any = select(Session.request_id, Session.state).where(Session.request_id.in_(request_ids))
    return dict((await tx.execute(query)).all()) if request_ids else {}


async def open_requests(tx: AsyncSession, requester: Whose) -> list[Request]:
    """Return a person's requests that wait for a decision now, under any of their names, the newest first."""
    found = await tx.scalars(
        select(Request)
        .where(
            requester.where(Request.requester),
            Request.parent_id.is_(None),
            Request.state.in_(UNDECIDED),
        )
        .order_by(Request.created_at.desc())
    )
    return list(found)


async def latest_request(tx: AsyncSession, whose: Whose) -> Request | None:
    """Return the newest request for GPUs of a person."""
    mine = (whose.where(Request.requester), Request.kind == RequestKind.PROVISION)
    return await tx.scalar(select(Request).where(*mine).order_by(Request.id.desc()).limit(1))


async def by_inbox_key(tx: AsyncSession, key: str) -> Request | None:
    """Return the request that an inbound message has made already."""
    return await tx.scalar(select(Request).where(Request.inbox_key == key))


async def open_grants(tx: AsyncSession, request_id: str) -> list[GrantRow]:
    """Return grants of a request that were neither used nor voided."""
    return list(
        await tx.scalars(select(GrantRow).where(GrantRow.request_id == request_id, GrantRow.state == GrantState.OPEN))
    )


async def grants_of_session(tx: AsyncSession, session_id: str) -> list[GrantRow]:
    """Return every grant of a session in order."""
    return list(
        await tx.scalars(select(GrantRow).where(GrantRow.session_id == session_id).order_by(GrantRow.created_at))
    )


async def instances_of_session(tx: AsyncSession, session_id: str) -> list[Instance]:
    """Return every instance row of a session in order, closed ones included."""
    return list(await tx.scalars(select(Instance).where(Instance.session_id == session_id).order_by(Instance.n)))


async def options_of(tx: AsyncSession, option_id: str) -> list[Option]:
    """Return all options of the quote that an option belongs to, ranked."""
    option = await tx.get_one(Option, option_id)
    return list(await tx.scalars(select(Option).where(Option.quote_id == option.quote_id).order_by(Option.rank)))


async def next_numbers(tx: AsyncSession, request_id: str, kind: str) -> tuple[int, int]:
    """Return `(the next seq of a grant of this kind, the next n of an instance)` of a request."""
    seq = await tx.scalar(
        select(func.max(GrantRow.seq)).where(GrantRow.request_id == request_id, GrantRow.kind == kind)
    )
    n = await tx.scalar(select(func.max(Instance.n)).where(Instance.request_id == request_id))
    return (seq or 0) + 1, (n or 0) + 1


async def is_label_taken(tx: AsyncSession, label: str) -> bool:
    """Whether an instance row or an orphan has this label."""
    row, orphan = exists().where(Instance.label == label), exists().where(Orphan.label == label)
    return bool(await tx.scalar(select(or_(row, orphan))))


async def has_instances(tx: AsyncSession) -> bool:
    """Whether the ledger has an instance row, open or closed."""
    return bool(await tx.scalar(select(exists(select(Instance.id)))))


async def open_instances_of_session(tx: AsyncSession, session_id: str) -> list[Instance]:
    """Return the session's instances that may exist at a cloud, or may still be sent."""
    return list(
        await tx.scalars(select(Instance).where(Instance.session_id == session_id, Instance.state.in_(OPEN_INSTANCE)))
    )


class OpenInstance(NamedTuple):
    """Hold the columns of an instance by which a listing shows that nothing has changed."""

    id: str
    state: InstanceState
    cloud: str
    account: str
    label: str
    ref: str | None
    name: str
    offer: dict[str, Any]
    created_at: datetime
    sent_at: datetime | None
    live_at: datetime | None
    reachable_at: datetime | None
    wanted: str | None
    price_usd_h: Decimal
    status: str
    status_text: str
    machine_id: str | None
    node_rank: int | None
    set_host: str | None
    absent_at: list[str]
    ssh_host: str | None
    ssh_port: int | None
    ssh_user: str | None
    ports: dict[str, str] | None
    host_key_at: datetime | None
    other_gpus: str
    trouble_at: datetime | None
    terminate_acked_at: datetime | None
    terminate_called_at: datetime | None
    billing_from: datetime | None
    billing_until: datetime | None
    storage_from: datetime | None
    storage_until: datetime | None
    unbilled_at: datetime | None


_OPEN_COLUMNS: tuple[Any, ...] = tuple(getattr(Instance, name) for name in OpenInstance._fields)
#: An instance, or those columns of it.
Open = Instance | OpenInstance


def _open_at(cloud: Any) -> tuple[ColumnElement[bool], ...]:
    return Instance.cloud == cloud, Instance.state.in_(OPEN_INSTANCE - {InstanceState.READY})


@cache
def _open_and_orphans() -> Select[Any]:
    """Build the statement of `open_instances`. Built once, because every look at a cloud begins with it."""
    cloud: ColumnElement[Any] = bindparam("cloud")
    orphans = exists().where(Orphan.cloud == cloud, Orphan.state != OrphanState.GONE)
    one = select(orphans.label("orphans")).subquery()
    query = select(Instance, one.c.orphans).select_from(one.outerjoin(Instance, and_(*_open_at(cloud))))
    return query.limit(bindparam("most", type_=Integer))


async def open_instances(tx: AsyncSession, cloud: str, few: int) -> tuple[Sequence[Open], bool]:
    """Return instances of every account at one cloud that may exist there and were already sent.

    And whether an orphan is open there, in the same statement, also where no instance is. More than
    `few` are returned as columns: a whole fleet is read each minute, and nearly nothing of it has changed.
    """
    rows = (await tx.execute(_open_and_orphans(), {"cloud": cloud, "most": few + 1})).all()
    is_orphan, found = bool(rows[0].orphans), [row.Instance for row in rows if row.Instance is not None]
    if len(found) <= few:
        return found, is_orphan
    columns = await tx.execute(select(*_OPEN_COLUMNS).where(*_open_at(cloud)))
    return [OpenInstance._make(row) for row in columns], is_orphan


async def open_instances_of(tx: AsyncSession, cloud: str, instance_ids: Collection[str]) -> list[Instance]:
    """Return which of these may exist at the cloud and were already sent."""
    return list(await tx.scalars(select(Instance).where(*_open_at(cloud), Instance.id.in_(instance_ids))))


async def undecided_creates(tx: AsyncSession) -> list[Instance]:
    """Return the creates at every cloud that were sent and have no outcome yet."""
    undecided = Instance.state.in_((InstanceState.SENDING, InstanceState.UNKNOWN))
    return list(await tx.scalars(select(Instance).where(undecided).order_by(Instance.id)))


async def instances_by_label(tx: AsyncSession, labels: Collection[str]) -> dict[str, Instance]:
    """Return instance rows of any state by their machine label."""
    if not labels:
        return {}
    rows = await tx.scalars(select(Instance).where(Instance.label.in_(list(labels))))
    return {row.label: row for row in rows}


async def public_keys(tx: AsyncSession, whose: Whose) -> list[SshKey]:
    """Return the public SSH keys of a person under all of their names, the oldest first."""
    mine = select(SshKey).where(whose.where(SshKey.owner))
    return list(await tx.scalars(mine.order_by(SshKey.created_at, SshKey.fingerprint)))


async def limits_of(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, WaitLimits]:
    """Return the limits of the requests that wait or waited."""
    rows = await tx.scalars(select(WaitLimits).where(WaitLimits.request_id.in_(sorted(request_ids))))
    return {row.request_id: row for row in rows}


async def jobs_of(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, tuple[StoredJob, tuple[str, ...]]]:
    """Return by request its job, and the names of the secrets that it gets now."""
    rows: Any = await tx.execute(select(Request.id, Request.job).where(Request.id.in_(sorted(request_ids))))
    secrets = await secrets_named(tx, request_ids)
    return {key: (job, secrets.get(key, ())) for key, job in rows.all()}


async def waiting_jobs(tx: AsyncSession, limit: int) -> list[StoredJob]:
    """Return the jobs of requests that wait, the oldest first."""
    waits = select(Request.job).where(Request.state == RequestState.WAITING).order_by(Request.created_at)
    return list(await tx.scalars(waits.limit(limit)))


async def open_advances(tx: AsyncSession, request_id: str) -> list[AdvanceApproval]:
    """Return the approvals in advance of a request that were neither used nor revoked, the oldest first."""
    mine = (AdvanceApproval.request_id == request_id, AdvanceApproval.state == GrantState.OPEN)
    query = select(AdvanceApproval).where(*mine).order_by(AdvanceApproval.at, AdvanceApproval.id)
    return list(await tx.scalars(query))


async def advances_of(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, list[AdvanceApproval]]:
    """Return the open approvals in advance of many requests, by request, the oldest first."""
    found: defaultdict[str, list[AdvanceApproval]] = defaultdict(list)
    mine = (AdvanceApproval.request_id.in_(sorted(request_ids)), AdvanceApproval.state == GrantState.OPEN)
    for row in await tx.scalars(select(AdvanceApproval).where(*mine).order_by(AdvanceApproval.at)):
        found[row.request_id].append(row)
    return found


async def instances_page(tx: AsyncSession, *, whose: Whose | None, live: bool, limit: int) -> list[Instance]:
    """Return instances from the newest on; of everybody's sessions when `whose` is None."""
    query = select(Instance).order_by(Instance.id.desc()).limit(limit)
    if live:
        query = query.where(Instance.state.in_(OPEN_INSTANCE))
    if whose is not None:
        query = query.where(Instance.session_id.in_(select(Session.id).where(whose.where(Session.owner))))
    return list(await tx.scalars(query))
