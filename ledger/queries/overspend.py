"""Read what running sessions cost and what was approved for them, in a fixed number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeVar, cast

from sqlalchemy import and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.actor import ActorKind
from ledger.kernel.request_kind import ABOUT_SESSION, RequestKind
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Approval, GrantRow, Instance, Node, Option, Quote, Request, Session
from ledger.queries.metering import BILLED_COLUMNS, Billable, BilledInstance
from ledger.queries.runs.graces import IS_REPLACED
from ledger.queries.session_costs import NOTHING, Booked, booked_of, extension_caps


@dataclass(frozen=True, slots=True)
class SpendTerms:
    """Hold an option's estimate for `asked_h`, and an approver's changes; `hours` None: nobody shortened it."""

    expected_usd: Decimal
    estimate: Mapping[str, Any]
    asked_h: Decimal
    hours: Decimal | None
    total_cap_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class SessionQuestion:
    """Describe a request about a running session: more time, or a new cost to confirm.

    `price_usd_h` was billed when it was asked; `rate_cap_usd_h` is the rate that its approval covers.
    """

    id: str
    kind: RequestKind
    state: RequestState
    created_at: datetime
    terms: SpendTerms
    decided_by: str | None = None
    price_usd_h: Decimal = Decimal(0)
    rate_cap_usd_h: Decimal | None = None


class GrowthQuestion(NamedTuple):
    """Hold one request about the growth of a network volume: its id, its state, and the rate that it asked about."""

    request_id: str
    state: RequestState
    price_usd_h: Decimal


async def growth_questions(tx: AsyncSession, request_id: str) -> list[GrowthQuestion]:
    """Return what approvers were asked about the growth of one volume, the oldest first."""
    query = (
        select(Request.id, Request.state, Option.price_usd_h)
        .join(Quote, Quote.request_id == Request.id)
        .join(Option, Option.quote_id == Quote.id)
        .where(Request.parent_id == request_id, Request.kind == RequestKind.OVERSPEND)
        .order_by(Request.created_at, Request.id)
    )
    return [GrowthQuestion(*one) for one in (await tx.execute(query)).all()]


class Agent(NamedTuple):
    """Hold the columns of an agent's row that its last report is in."""

    seq: int
    at: datetime | None
    idle_since: datetime | None
    work: str
    work_over_at: datetime | None
    report: dict[str, Any]


Row = TypeVar("Row", bound=Billable)


@dataclass(frozen=True, slots=True)
class RunningInstance(Generic[Row]):
    """Describe one running session with its instance `row` and the cost that is booked for it.

    `elsewhere_usd` was booked on the instances before it that the same approval paid for; `cap_usd` is the most that
    all of them may cost, extensions included. `questions` were asked since that approval. `rate_cap_usd_h` is the rate
    that the instance's grant covers.
    """

    session_id: str
    request_id: str
    deadline: datetime
    row: Row
    node: Agent | None
    terms: SpendTerms
    cap_usd: Decimal
    booked: Booked
    elsewhere_usd: Decimal = Decimal(0)
    questions: tuple[SessionQuestion, ...] = ()
    rate_cap_usd_h: Decimal = Decimal(0)

    @property
    def approved_usd_h(self) -> Decimal:
        """Return the highest rate approved for the instance: by its grant, or since it exists by an overspend request.

        `approved_rate` reads the same for one instance.
        """
        since = [q for q in self.questions if q.kind is RequestKind.OVERSPEND and q.created_at >= self.row.created_at]
        rates = [q.rate_cap_usd_h for q in since if q.state is RequestState.APPROVED and q.rate_cap_usd_h is not None]
        return max([self.rate_cap_usd_h, *rates])


#: Conditions of a running session: nobody stops it, and nobody ends it. Of the stopped ones, those count whose rate is
#: above their grant's: they cannot start before somebody approved it.
_RUNS: Sequence[Any] = (
    Session.deadline.is_not(None),
    Instance.wanted.is_(None),
    ~IS_REPLACED,
    or_(
        and_(Session.state == SessionState.RUNNING, Instance.state == InstanceState.LIVE),
        and_(
            Session.state == SessionState.STOPPED,
            Instance.state == InstanceState.STOPPED,
            Instance.price_usd_h > GrantRow.price_cap_usd_h,
        ),
    ),
)


#: What `running` reads of a session and of its grant: rows of a whole fleet are cheaper without the rest.
_OF_SESSION: Sequence[Any] = (
    Session.id,
    Session.request_id,
    Session.deadline,
    GrantRow.total_cap_usd,
    GrantRow.price_cap_usd_h,
)


_OF_AGENT: Sequence[Any] = tuple(getattr(Node, name) for name in Agent._fields)


async def running_ids(tx: AsyncSession) -> list[str]:
    """Return the session of every running instance without a pending power order, in a fixed order."""
    query = select(Session.id).join(Instance, Instance.session_id == Session.id)
    query = query.join(GrantRow, GrantRow.id == Instance.grant_id).where(*_RUNS).order_by(Session.id)
    return list(await tx.scalars(query))


async def running(tx: AsyncSession, session_ids: Collection[str]) -> list[RunningInstance[Instance]]:
    """Return which of these sessions run on a live instance, with the terms and costs of each."""
    return await _running(tx, session_ids, (Instance,), lambda found: cast("Instance", found[0]))


async def running_columns(tx: AsyncSession, session_ids: Collection[str]) -> list[RunningInstance[BilledInstance]]:
    """Return the same with the columns that say what each instance costs: a whole fleet is read without objects."""
    return await _running(tx, session_ids, BILLED_COLUMNS, BilledInstance._make)


async def _running(
    tx: AsyncSession, session_ids: Collection[str], columns: Sequence[Any], row_of: Callable[[Sequence[Any]], Row]
) -> list[RunningInstance[Row]]:
    query = (
        select(*columns, *_OF_AGENT, *_OF_SESSION, Approval.id, Approval.at, *_TERMS)
        .join(Instance, Instance.session_id == Session.id)
        .join(Option, Option.id == Instance.option_id)
        .join(Request, Request.id == Session.request_id)
        .join(GrantRow, GrantRow.id == Instance.grant_id)
        .join(Approval, Approval.id == GrantRow.approval_id)
        .outerjoin(Node, Node.instance_id == Instance.id)
        .where(Session.id.in_(session_ids), *_RUNS)
    )
    rows: Any = (await tx.execute(query)).all()
    if not rows:
        return []
    booked, longer = await booked_of(tx, session_ids), await extension_caps(tx, session_ids)
    paid_by, asked = await _paid_by(tx, session_ids), await _asked(tx, session_ids)
    found, width, agent_to = [], len(columns), len(columns) + len(_OF_AGENT)
    for values in rows:
        row, agent = row_of(values[:width]), values[width:agent_to]
        session_id, request_id, deadline, cap_usd, rate_cap_usd_h, approval_id, decided_at, *terms = values[agent_to:]
        amounts = booked.get(session_id, {})
        before = [one.usd for of, one in amounts.items() if of != row.id and paid_by.get(of) == approval_id]
        elsewhere_usd = sum(before, Decimal(0))
        found.append(
            RunningInstance(
                session_id=session_id,
                request_id=request_id,
                deadline=deadline,
                row=row,
                node=Agent._make(agent) if agent[0] is not None else None,
                terms=_terms(*terms),
                cap_usd=cap_usd + longer.get(session_id, Decimal(0)) + elsewhere_usd,
                booked=amounts.get(row.id, NOTHING),
                elsewhere_usd=elsewhere_usd,
                questions=tuple(one for one in asked.get(request_id, ()) if one.created_at >= decided_at),
                rate_cap_usd_h=rate_cap_usd_h,
            )
        )
    return found


async def _paid_by(tx: AsyncSession, session_ids: Collection[str]) -> dict[str, str]:
    """Return the approval that paid for each earlier instance of these sessions."""
    query: Any = (
        select(Instance.id, GrantRow.approval_id)
        .join(GrantRow, GrantRow.id == Instance.grant_id)
        .where(Instance.session_id.in_(session_ids), Instance.state == InstanceState.GONE)
    )
    return dict((await tx.execute(query)).all())


#: The columns that `_terms` reads.
_TERMS: Sequence[Any] = (
    Option.expected_usd,
    Option.estimate,
    Request.job["hours"].as_string(),
    Approval.hours,
    Approval.total_cap_usd,
)


def _terms(
    expected_usd: Decimal, estimate: Mapping[str, Any], asked_h: str, hours: str | None, total_cap_usd: Decimal | None
) -> SpendTerms:
    asked = Decimal(asked_h)
    shorter = Decimal(hours) if hours is not None and Decimal(hours) < asked else None
    return SpendTerms(expected_usd, estimate, asked, shorter, total_cap_usd)


async def _asked(tx: AsyncSession, session_ids: Collection[str]) -> dict[str, list[SessionQuestion]]:
    approved = (Approval.request_id == Request.id) & (Approval.decision == "approve")
    query = (
        select(Request, Option.price_usd_h, Approval.price_cap_usd_h, *_TERMS)
        .join(Session, Session.request_id == Request.parent_id)
        .join(Quote, (Quote.request_id == Request.id) & (Quote.version == Request.quote_version))
        .join(Option, Option.quote_id == Quote.id)
        .outerjoin(Approval, approved)
        .where(Session.id.in_(session_ids), Request.kind.in_(ABOUT_SESSION))
        .order_by(Request.created_at, Request.id, Approval.at, Approval.id)
    )
    found: dict[str, dict[str, SessionQuestion]] = defaultdict(dict)
    rows: Any = (await tx.execute(query)).all()
    for request, price_usd_h, rate_cap_usd_h, *terms in rows:  # Of two approvals the later one covers what both left.
        found[request.parent_id][request.id] = SessionQuestion(
            request.id,
            request.kind,
            request.state,
            request.created_at,
            _terms(*terms),
            request.decided_by,
            price_usd_h,
            rate_cap_usd_h,
        )
    return {parent_id: list(questions.values()) for parent_id, questions in found.items()}


@dataclass(frozen=True, slots=True)
class ApprovedRate:
    """Name the rate that was approved for an instance, and the request and the approval that cover it."""

    usd_h: Decimal
    request_id: str
    approval_id: str


async def approved_rate(tx: AsyncSession, row: Instance) -> ApprovedRate:
    """Return the highest rate approved for one instance: by its grant, or since it exists by an overspend request."""
    grant = await tx.get_one(GrantRow, row.grant_id)
    newer: Any = (
        await tx.execute(
            select(Approval.price_cap_usd_h, Approval.request_id, Approval.id)
            .join(Request, Request.id == Approval.request_id)
            .where(
                Request.parent_id == row.request_id,
                Request.kind == RequestKind.OVERSPEND,
                Request.state == RequestState.APPROVED,
                Request.created_at >= row.created_at,
                Approval.decision == "approve",
                Approval.price_cap_usd_h > grant.price_cap_usd_h,
            )
            .order_by(Approval.price_cap_usd_h.desc(), Approval.at.desc(), Approval.id)
            .limit(1)
        )
    ).first()
    if newer is None:
        return ApprovedRate(grant.price_cap_usd_h, grant.request_id, grant.approval_id)
    return ApprovedRate(*newer)


async def open_overspend_request(tx: AsyncSession, request_id: str) -> Request | None:
    """Return the newest unconfirmed request about a session's cost since its last approval; None without one."""
    decided_at = select(func.max(Approval.at)).where(Approval.request_id == request_id, Approval.decision == "approve")
    since = func.coalesce(decided_at.scalar_subquery(), Request.created_at)
    newest = await tx.scalar(
        select(Request)
        .where(Request.parent_id == request_id, Request.kind == RequestKind.OVERSPEND, Request.created_at >= since)
        .order_by(Request.created_at.desc(), Request.id.desc())
        .limit(1)
    )
    return newest if newest is not None and is_open(newest.state, newest.decided_by) else None


def is_open(state: RequestState, decided_by: str | None) -> bool:
    """Whether a cost is unconfirmed: not approved, and not withdrawn by the service as within the approval again."""
    withdrawn = state is RequestState.CANCELLED and (decided_by or "").startswith(f"{ActorKind.SYSTEM}:")
    return state is not RequestState.APPROVED and not withdrawn


async def undecided(tx: AsyncSession, request_id: str, kinds: Collection[RequestKind]) -> list[Request]:
    """Return undecided requests of these kinds about the session of a request."""
    mine = (Request.parent_id == request_id, Request.kind.in_(list(kinds)), Request.state == RequestState.PENDING)
    return list(await tx.scalars(select(Request).where(*mine)))
