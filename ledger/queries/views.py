"""Read what the interfaces show: each function reads one consistent state and returns rows, detached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_family
from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import bare_id
from ledger.kernel.states import LIVE_SESSION, OPEN_INSTANCE, UNDECIDED, SessionState
from ledger.models import (
    AdvanceApproval,
    Approval,
    Disk,
    GraceRow,
    GrantRow,
    Instance,
    Migration,
    Node,
    Option,
    Quote,
    Request,
    Session,
    Token,
    WaitLimits,
)
from ledger.queries.access import Whose, own_or_shared, shared_with
from ledger.queries.cloud_accounts import listing_times
from ledger.queries.jobs.command_claims import ended_counts
from ledger.queries.jobs.resume_points import resume_sentences
from ledger.queries.lookups import current_quote, open_advances, override_of, session_of
from ledger.queries.nodes import nodes_of
from ledger.queries.people.credentials import secrets_named
from ledger.queries.recovery.older import recovery
from ledger.queries.retained_disks import open_disks
from ledger.queries.runs.graces import graces_of_sessions
from ledger.queries.runs.machines import machines
from ledger.queries.runs.relocations import last_migration_of, migrations_of
from ledger.queries.session_costs import NOTHING, Booked, booked_of, extension_caps, unsettled_of_earlier

SHORTEST_ENDING = 4
INSTANCE_PREFIX = "ins_"


@dataclass(frozen=True, slots=True)
class RequestView:
    """Hold everything that the message about one request shows.

    `options` are ranked; `tokens` are of this quote version. `parent` is set on an override request, `override` on the
    request that waits for one.
    """

    request: Request
    quote: Quote | None
    options: tuple[Option, ...]
    tokens: tuple[Token, ...]
    approvals: tuple[Approval, ...]
    session: Session | None
    instances: tuple[Instance, ...]
    parent: Request | None
    override: Request | None
    #: Instances of ours that the ledger does not know: while there are any, nothing is bought or ended.
    unknown: int = 0
    #: The ledger is older than its records, and nobody has accepted it: nothing is bought or ended either.
    is_older: bool = False
    #: References of the people with whom its machine is shared.
    shared_with: tuple[str, ...] = ()
    #: Names of the secrets that its job gets.
    secrets: tuple[str, ...] = ()
    #: For what and until when it waits or waited; None where it never does.
    limits: WaitLimits | None = None
    #: The newest migration that its session is the source or the target of.
    migration: Migration | None = None
    #: The approvals in advance that are neither used nor revoked.
    in_advance: tuple[AdvanceApproval, ...] = ()
    #: The machine of its session that stopped working and is kept; None where there is none.
    grace: GraceRow | None = None

    @property
    def machines(self) -> list[Instance]:
        """Return its instances but the refused ones whose create was sent again: of a set, one for each machine."""
        return machines(self.instances)


@dataclass(frozen=True, slots=True)
class SessionView:
    """Hold a session with its newest instance, that instance's `grant` without extensions, and the booked cost."""

    session: Session
    request: Request
    instance: Instance | None
    grant: GrantRow | None
    accrued_usd: Decimal
    accrued_until: datetime | None
    #: What is booked of that instance alone.
    booked: Booked = NOTHING
    #: The most that the session may cost: what is approved for that instance, and what earlier ones cost.
    cap_usd: Decimal = Decimal(0)
    #: The agent of that instance, where it was given a token.
    node: Node | None = None
    #: Its disk, while its instance is stopped.
    disk: Disk | None = None
    #: Instances of ours that the ledger does not know: while there are any, nothing is bought or ended.
    unknown: int = 0
    #: The ledger is older than its records, and nobody has accepted it: nothing is bought or ended either.
    is_older: bool = False
    #: References of the people with whom it is shared: they log in, and change nothing.
    shared_with: tuple[str, ...] = ()
    #: The newest migration that it is the source or the target of.
    migration: Migration | None = None
    #: When the cloud's listing last covered that instance, to three minutes; None: not since this is noted.
    listed_at: datetime | None = None
    #: The other machines of its set, whose first one is `instance`, each with what is booked of it.
    others: tuple[tuple[Instance, Booked], ...] = ()
    #: Of a queue that its machines share: how many commands are done, and how many failed.
    ended_commands: tuple[int, int] = (0, 0)
    #: From which checkpoint a replacement continues, and how much work is lost; "" where nothing was replaced.
    resumed: str = ""
    #: The machine of it that stopped working and is kept; None where there is none.
    grace: GraceRow | None = None

    @property
    def price_usd_h(self) -> Decimal:
        """Return what an hour of its machine costs, or of all machines of its set; 0 without one."""
        machines = [one for one in (self.instance, *(row for row, _ in self.others)) if one is not None]
        # Those that share a queue end one by one.
        left = [one for one in machines if one.state in OPEN_INSTANCE] if self.session.dealt_commands else []
        return sum((one.price_usd_h for one in left or machines), Decimal(0))

    @property
    def people(self) -> tuple[str, ...]:
        """Return who may log in: the owner, and those with whom it is shared."""
        return (self.session.owner, *self.shared_with)

    @property
    def retained_disk(self) -> Disk | None:
        """Return the disk that outlives the approved end: all that is left of the session, or a preserved one."""
        outlives = self.session.state is SessionState.TERMINATING or bool(self.session.preserve)
        return self.disk if outlives else None


async def request_view(tx: AsyncSession, request_id: str) -> RequestView:
    """Return the view of one request; LookupError when there is none."""
    limited = select(Request, WaitLimits).outerjoin(WaitLimits, WaitLimits.request_id == Request.id)
    row: Any = (await tx.execute(limited.where(Request.id == request_id))).one_or_none()
    if row is None:
        raise LookupError(f"there is no request {request_id}")
    request, limits = row
    quote = await current_quote(tx, request)
    options: Sequence[Option] = ()
    if quote is not None:
        options = (await tx.scalars(select(Option).where(Option.quote_id == quote.id).order_by(Option.rank))).all()
    tokens = await tx.scalars(
        select(Token).where(Token.request_id == request.id, Token.quote_version == request.quote_version)
    )
    approvals = await tx.scalars(
        select(Approval).where(Approval.request_id == request.id).order_by(Approval.at, Approval.id)
    )
    session = await session_of(tx, request.id)
    instances: Sequence[Instance] = ()
    if session is not None:
        rows = await tx.scalars(select(Instance).where(Instance.session_id == session.id).order_by(Instance.n))
        instances = rows.all()
    parent, waits = await tx.get(Request, request.parent_id) if request.parent_id else None, await recovery(tx)
    return RequestView(
        request,
        quote,
        tuple(options),
        tuple(tokens.all()),
        tuple(approvals.all()),
        session,
        tuple(instances),
        parent,
        await override_of(tx, request.id) if parent is None else None,
        waits.unknown,
        waits.older_since is not None,
        (await shared_with(tx, [request.id])).get(request.id, ()),
        (await secrets_named(tx, [request.id])).get(request.id, ()),
        limits,
        await last_migration_of(tx, session.id, request.id) if session is not None else None,
        tuple(await open_advances(tx, request.id)) if limits is not None else (),
        (await graces_of_sessions(tx, [session.id])).get(session.id) if session is not None else None,
    )


async def session_view(tx: AsyncSession, session_id: str) -> SessionView:
    """Return the view of one session; LookupError when there is none."""
    session = await tx.get(Session, session_id)
    if session is None:
        raise LookupError(f"there is no session {session_id}")
    return (await views_of_sessions(tx, [session]))[0]


async def session_views(
    tx: AsyncSession, *, whose: Whose | None = None, limit: int = 50, with_shared: bool = False
) -> list[SessionView]:
    """Return live sessions, the soonest to end first; of everybody when `whose` is None.

    `with_shared` includes those that others share with `whose`.
    """
    # The databases disagree on where NULL sorts; a session whose end is not fixed yet comes last on both.
    soonest = (Session.deadline.is_(None), Session.deadline, Session.id)
    query = select(Session).where(Session.state.in_(LIVE_SESSION)).order_by(*soonest).limit(limit)
    if whose is not None:
        shared = own_or_shared(whose, Session.owner, Session.request_id)
        query = query.where(shared if with_shared else whose.where(Session.owner))
    return await views_of_sessions(tx, (await tx.scalars(query)).all())


async def sessions_page(
    tx: AsyncSession, *, whose: Whose | None, live: bool, before: str | None, limit: int, ended: bool = False
) -> list[SessionView]:
    """Return sessions from the newest on, older than the id `before`; of everybody when `whose` is None.

    Those that others share with `whose` are among them. `ended` returns only those that ended, `live` only the others.
    """
    query = select(Session).order_by(Session.id.desc()).limit(limit)
    if ended:
        query = query.where(Session.state.not_in(LIVE_SESSION))
    elif live:
        query = query.where(Session.state.in_(LIVE_SESSION))
    if whose is not None:
        query = query.where(own_or_shared(whose, Session.owner, Session.request_id))
    if before is not None:
        query = query.where(Session.id < before)
    return await views_of_sessions(tx, (await tx.scalars(query)).all())


async def requests_page(
    tx: AsyncSession, *, whose: Whose | None, waiting: bool, before: str | None, limit: int
) -> list[Request]:
    """Return requests from the newest on, older than the id `before`; of everybody when `whose` is None."""
    query = select(Request).order_by(Request.id.desc()).limit(limit)
    if waiting:
        query = query.where(Request.state.in_(UNDECIDED))
    if whose is not None:
        query = query.where(whose.where(Request.requester))
    if before is not None:
        query = query.where(Request.id < before)
    return list(await tx.scalars(query))


def _machines(
    sessions: Sequence[Session], rows: Sequence[Instance]
) -> tuple[dict[str, Instance], Mapping[str, list[Instance]]]:
    """Return by session the machine that stands for it, and the further ones that it has at the same time."""
    sharing, rows = {s.id for s in sessions if s.dealt_commands}, machines(rows)
    newest = {i.session_id: i for i in rows if not i.node_rank}
    # A replacement that failed leaves the machine before it, which is kept in grace.
    newest |= {i.session_id: i for i in rows if not i.node_rank and i.state in OPEN_INSTANCE}
    # Of the machines that share a queue any may end first, so the first open one stands for them.
    newest |= {i.session_id: i for i in reversed(rows) if i.session_id in sharing and i.state in OPEN_INSTANCE}
    further: defaultdict[str, list[Instance]] = defaultdict(list)
    for one in rows:
        if one is not newest.get(one.session_id) and (one.node_rank or one.session_id in sharing):
            further[one.session_id].append(one)
    return newest, further


async def views_of_sessions(tx: AsyncSession, sessions: Sequence[Session]) -> list[SessionView]:
    """Build the views with a fixed number of queries for any number of sessions, and none for none."""
    if not sessions:
        return []
    ids = [s.id for s in sessions]
    request_ids = [s.request_id for s in sessions]
    requests = {r.id: r for r in await tx.scalars(select(Request).where(Request.id.in_(request_ids)))}
    rows = (await tx.scalars(select(Instance).where(Instance.session_id.in_(ids)).order_by(Instance.n))).all()
    newest, further = _machines(sessions, rows)
    sharing = [s.id for s in sessions if s.dealt_commands]
    ended = await ended_counts(tx, sharing) if sharing else {}
    grants = await _grants(tx, ids)
    booked = await booked_of(tx, ids)
    longer = await extension_caps(tx, ids)
    agents = await nodes_of(tx, [row.id for row in newest.values()])
    still = [s.id for s in sessions if s.state in (SessionState.STOPPED, SessionState.TERMINATING)]
    disks = {disk.session_id: disk for disk in await open_disks(tx, still)} if still else {}
    waits, shared = await recovery(tx), await shared_with(tx, request_ids)
    moves = await migrations_of(tx, ids)
    graces = await graces_of_sessions(tx, ids)
    replaced = {row.id: key for key, row in newest.items() if key in grants and grants[key].kind == GrantKind.REPLACE}
    resumed = await resume_sentences(tx, list(replaced)) if replaced else {}
    unsettled = await unsettled_of_earlier(tx, replaced) if replaced else {}
    listed = await listing_times(tx, {(row.cloud, row.account) for row in newest.values()})
    found, nothing = [], Decimal(0)
    for s in sessions:
        others = further[s.id]
        row, grant, every = newest.get(s.id), grants.get(s.id), booked.get(s.id, {})
        total = sum((one.usd for one in every.values()), Decimal(0))
        mine = every.get(row.id, NOTHING) if row else NOTHING
        own_usd = grant.total_cap_usd * s.nodes if grant else Decimal(0)
        together_usd = mine.usd + sum((every.get(one.id, NOTHING).usd for one in others), Decimal(0))
        found.append(
            SessionView(
                session=s,
                request=requests[s.request_id],
                instance=row,
                grant=grant,
                accrued_usd=total,
                accrued_until=max((one.until for one in every.values() if one.until), default=None),
                booked=mine,
                cap_usd=own_usd + longer.get(s.id, nothing) + total - together_usd + unsettled.get(s.id, nothing),
                node=agents.get(row.id) if row else None,
                disk=disks.get(s.id),
                unknown=waits.unknown,
                is_older=waits.older_since is not None,
                shared_with=shared.get(s.request_id, ()),
                migration=moves.get(s.id),
                listed_at=listed.get((row.cloud, row.account)) if row else None,
                others=tuple((one, every.get(one.id, NOTHING)) for one in others),
                ended_commands=ended.get(s.id, (0, 0)),
                resumed=resumed.get(row.id, "") if row else "",
                grace=graces.get(s.id),
            )
        )
    return found


async def _grants(tx: AsyncSession, session_ids: Sequence[str]) -> dict[str, GrantRow]:
    """Return by session the grant of its newest machine, without extensions."""
    machine_kinds = (GrantRow.session_id.in_(session_ids), GrantRow.kind.in_([GrantKind.CREATE, GrantKind.REPLACE]))
    grants = select(GrantRow).where(*machine_kinds).order_by(GrantRow.created_at, GrantRow.seq)
    return {str(grant.session_id): grant for grant in await tx.scalars(grants)}


async def pending_requests(tx: AsyncSession, *, whose: Whose | None = None, limit: int = 50) -> list[Request]:
    """Return requests that wait for offers or for a decision, oldest first; of everybody when `whose` is None."""
    query = select(Request).where(Request.state.in_(UNDECIDED)).order_by(Request.created_at).limit(limit)
    if whose is not None:
        query = query.where(whose.where(Request.requester))
    return list(await tx.scalars(query))


def nothing_ends_in(text: str) -> str:
    """Say that an id names nothing, or nothing that the person may see."""
    if ":" in text:
        return f"“{text[:60]}” is not an instance of a session here now, so it is left alone"
    wanted = bare_id(text.strip().strip("`").lower())
    return f"There is no request or session “{wanted}”; see `gpu-shopper sessions`"


async def resolve(tx: AsyncSession, text: str, *, past: bool = False) -> tuple[Request, Session | None]:
    """Find the request (and its session, if any) that a person named by an id or by a unique ending of one.

    An instance names its session too, by its id here or as `cloud:id`, by its id there; an ended one only where the
    `past` is read. Raises LookupError with a sentence that says what was wrong and what a right one looks like.
    """
    if ":" in text or text.startswith(INSTANCE_PREFIX):
        return await _of_instance(tx, text, past=past)
    wanted = bare_id(text.strip().strip("`").lower())
    if len(wanted) < SHORTEST_ENDING or not wanted.isalnum():
        raise LookupError(
            f"“{text[:40]}” is not an id; give at least the last {SHORTEST_ENDING} characters, as in 7k2m9x"
        )
    found = list(await tx.scalars(select(Request).where(Request.id.endswith(wanted, autoescape=True)).limit(2)))
    sessions = list(await tx.scalars(select(Session).where(Session.id.endswith(wanted, autoescape=True)).limit(2)))
    requests = {r.id: r for r in found}
    for session in sessions:
        request = await tx.get_one(Request, session.request_id)
        requests[request.id] = request
    if not requests:
        raise LookupError(nothing_ends_in(text))
    if len(requests) > 1:
        raise LookupError(f"More than one request or session ends in “{wanted}”; give more of its characters")
    (request,) = requests.values()
    return request, await session_of(tx, request.id)


async def _of_instance(tx: AsyncSession, text: str, *, past: bool) -> tuple[Request, Session | None]:
    cloud, colon, ref = text.partition(":")
    which = (Instance.cloud == cloud, Instance.ref == ref) if colon else (Instance.id == text,)
    query = select(Request).join(Instance, Instance.request_id == Request.id).where(*which)
    if not past:
        # A person who ends an instance that is gone already does not mean its replacement.
        query = query.where(Instance.state.in_(OPEN_INSTANCE))
    # A cloud may use an id again; what is meant is what is there now.
    found = await tx.scalar(query.order_by(Instance.created_at.desc()).limit(1))
    if found is None:
        raise LookupError(nothing_ends_in(text))
    return found, await session_of(tx, found.id)


async def session_to_change(tx: AsyncSession, text: str) -> Session | None:
    """Lock and return the session that `text` names. None, or LookupError, as with `resolve`."""
    _, session = await resolve(tx, text)
    if session is not None:
        await lock_family(tx, Session, session.id)
        await tx.refresh(session)
    return session
