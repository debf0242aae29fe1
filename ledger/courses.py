"""What running sessions cost and what was approved for them: a fixed number of queries for any number of sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import GrantRow, Instance, LedgerEntry, Node, Option, Quote, Request, Session
from ledger.rollup import TOTAL, USED
from ledger.states import GrantState, InstanceState, RequestState, SessionState

#: Answers that leave a new figure unconfirmed.
OPEN_DRIFT = frozenset({RequestState.PENDING, RequestState.REJECTED, RequestState.EXPIRED})


@dataclass(frozen=True, slots=True)
class Question:
    """A request that was made for a session that runs: more time, or a new figure to confirm."""

    id: str
    kind: str
    state: RequestState
    created_at: datetime
    expected_usd: Decimal
    hours: Decimal


@dataclass(frozen=True, slots=True)
class Running:
    """One running session. `elsewhere_usd` was booked on its earlier instances, `booked_usd` on this one."""

    session_id: str
    request_id: str
    deadline: datetime
    cloud: str
    price_usd_h: Decimal
    began_at: datetime
    billing_from: datetime | None
    expected_usd: Decimal
    estimate: dict[str, Any]
    node: Node | None
    cap_usd: Decimal
    booked_usd: Decimal = Decimal(0)
    elsewhere_usd: Decimal = Decimal(0)
    questions: tuple[Question, ...] = field(default=())


async def running(tx: AsyncSession, session_id: str | None = None) -> list[Running]:
    """Every session that runs on a live instance, or one of them."""
    query = (
        select(Session, Instance, Option.expected_usd, Option.estimate, Node, func.sum(GrantRow.total_cap_usd))
        .join(Instance, Instance.session_id == Session.id)
        .join(Option, Option.id == Instance.option_id)
        .join(GrantRow, GrantRow.session_id == Session.id)
        .outerjoin(Node, Node.instance_id == Instance.id)
        .where(Session.state == SessionState.RUNNING, Instance.state == InstanceState.LIVE)
        .where(Session.deadline.is_not(None), Instance.wanted.is_(None))
        .where((GrantRow.id == Instance.grant_id) | (GrantRow.kind == "extend"), GrantRow.state != GrantState.VOID)
        .group_by(Session.id, Instance.id, Option.id, Node.instance_id)
    )
    if session_id is not None:
        query = query.where(Session.id == session_id)
    rows: Any = (await tx.execute(query)).all()
    if not rows:
        return []
    booked = await _booked(tx, session_id)
    asked = await _asked(tx, session_id)
    found = []
    for session, row, expected_usd, estimate, node, cap_usd in rows:
        amounts = booked[session.id]
        mine = amounts.get(row.id, Decimal(0))
        found.append(
            Running(
                session_id=session.id,
                request_id=session.request_id,
                deadline=session.deadline,
                cloud=row.cloud,
                price_usd_h=row.price_usd_h,
                began_at=row.sent_at or row.created_at,
                billing_from=row.billing_from,
                expected_usd=expected_usd,
                estimate=estimate,
                node=node,
                cap_usd=cap_usd,
                booked_usd=mine,
                elsewhere_usd=sum(amounts.values(), Decimal(0)) - mine,
                questions=tuple(asked[session.request_id]),
            )
        )
    return found


async def _booked(tx: AsyncSession, session_id: str | None) -> dict[str, dict[str, Decimal]]:
    query = (
        select(LedgerEntry.session_id, LedgerEntry.instance_id, TOTAL)
        .join(Session, Session.id == LedgerEntry.session_id)
        .where(Session.state == SessionState.RUNNING, LedgerEntry.kind.in_(USED))
        .group_by(LedgerEntry.session_id, LedgerEntry.instance_id)
    )
    if session_id is not None:
        query = query.where(Session.id == session_id)
    found: dict[str, dict[str, Decimal]] = defaultdict(dict)
    rows: Any = await tx.execute(query)
    for of_session, instance_id, amount_usd in rows:
        found[of_session][instance_id or ""] = amount_usd
    return found


async def _asked(tx: AsyncSession, session_id: str | None) -> dict[str, list[Question]]:
    query = (
        select(Request, Option.expected_usd)
        .join(Session, Session.request_id == Request.parent_id)
        .join(Quote, (Quote.request_id == Request.id) & (Quote.version == Request.quote_version))
        .join(Option, Option.quote_id == Quote.id)
        .where(Session.state == SessionState.RUNNING, Request.kind.in_(["extend", "drift_reconfirm"]))
        .order_by(Request.created_at, Request.id)
    )
    if session_id is not None:
        query = query.where(Session.id == session_id)
    found: dict[str, list[Question]] = defaultdict(list)
    rows: Any = await tx.execute(query)
    for request, expected_usd in rows:
        hours = Decimal(str(request.job["hours"]))
        one = Question(request.id, request.kind, request.state, request.created_at, expected_usd, hours)
        found[request.parent_id].append(one)
    return found


async def open_drift(tx: AsyncSession, request_id: str) -> Request | None:
    """The newest question about the cost of a request's session, when nobody confirmed it."""
    newest = await tx.scalar(
        select(Request)
        .where(Request.parent_id == request_id, Request.kind == "drift_reconfirm")
        .order_by(Request.created_at.desc(), Request.id.desc())
        .limit(1)
    )
    return newest if newest is not None and newest.state in OPEN_DRIFT else None


async def undecided(tx: AsyncSession, request_id: str, kinds: Collection[str]) -> list[Request]:
    """Undecided requests of these kinds about the session of a request."""
    mine = (Request.parent_id == request_id, Request.kind.in_(list(kinds)), Request.state == RequestState.PENDING)
    return list(await tx.scalars(select(Request).where(*mine)))
