"""Read what was approved, and what was used, of whole runs: of all requests that one run was made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import and_, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.entry_kind import USED
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.models import Approval, GrantRow, Instance, LedgerEntry, Option, Request, Session
from ledger.queries.rollup import TOTAL


@dataclass(frozen=True, slots=True)
class RunSession:
    """Describe one session of a run, with its request."""

    run_id: str
    request_id: str
    request_state: RequestState
    quote_version: int
    session_id: str
    state: SessionState
    hours: Decimal


@dataclass(frozen=True, slots=True)
class ApprovedAmount:
    """Hold one approval that a grant of a session was made of; `version` None for one that is not of its request."""

    session_id: str
    approval_id: str
    at: datetime
    version: int | None
    total_usd: Decimal
    expected_usd: Decimal


@dataclass(frozen=True, slots=True)
class UsedTime:
    """Hold from when until when one instance was billed, under which approval, and what is booked of it until when.

    Where its end is not settled, it counts until the latest end that is known, with what that may have cost.
    """

    session_id: str
    approval_id: str
    sent_at: datetime
    until: datetime | None
    price_usd_h: Decimal
    booked_usd: Decimal
    booked_until: datetime | None


async def sessions_of_runs(tx: AsyncSession, run_ids: Collection[str]) -> list[RunSession]:
    """Return the sessions of these runs; `run_id` is the first request of each."""
    mine = or_(Request.run_id.in_(run_ids), Request.id.in_(run_ids))
    query: Any = (
        select(
            func.coalesce(Request.run_id, Request.id),
            Request.id,
            Request.state,
            Request.quote_version,
            Session.id,
            Session.state,
            Session.hours,
        )
        .join(Session, Session.request_id == Request.id)
        .where(mine)
        .order_by(Request.id)
    )
    rows: Any = await tx.execute(query)
    return [
        RunSession(run, request_id, request_state, version, session_id, state, Decimal(hours))
        for run, request_id, request_state, version, session_id, state, hours in rows
    ]


async def approved_amounts(tx: AsyncSession, session_ids: Collection[str]) -> list[ApprovedAmount]:
    """Return each approval that bought time for these sessions once, however many grants were made of it."""
    buys = and_(GrantRow.session_id.in_(session_ids), GrantRow.kind.in_((GrantKind.CREATE, GrantKind.EXTEND)))
    granted = or_(GrantRow.kind == GrantKind.CREATE, GrantRow.state != GrantState.VOID)
    version: Any = (GrantRow.kind == GrantKind.CREATE, Approval.quote_version)
    query: Any = (
        select(
            GrantRow.session_id,
            Approval.id,
            Approval.at,
            *version,
            Approval.total_cap_usd,
            Option.expected_usd,
        )
        .distinct()
        .join(Approval, Approval.id == GrantRow.approval_id)
        .outerjoin(Option, Option.id == Approval.option_id)
        .where(buys, granted)
    )
    found = []
    for session_id, approval_id, at, is_create, number, total_usd, expected_usd in (await tx.execute(query)).all():
        total = total_usd or Decimal(0)
        expected = total if expected_usd is None else min(expected_usd, total)
        found.append(ApprovedAmount(session_id, approval_id, at, number if is_create else None, total, expected))
    return found


async def used_times(tx: AsyncSession, session_ids: Collection[str]) -> list[UsedTime]:
    """Return what each instance of these sessions used that a cloud may have billed."""
    booked: Any = (
        select(LedgerEntry.instance_id, TOTAL.label("usd"), func.max(LedgerEntry.at).label("until"))
        .where(LedgerEntry.session_id.in_(session_ids), LedgerEntry.kind.in_(USED))
        .group_by(LedgerEntry.instance_id)
        .subquery()
    )
    never = Instance.state.in_([InstanceState.REJECTED, InstanceState.TOMBSTONE])
    query: Any = (
        select(
            Instance.session_id,
            GrantRow.approval_id,
            Instance.sent_at,
            case(
                (Instance.unsettled_usd.is_not(None), Instance.latest_end_at),
                else_=func.coalesce(Instance.billing_until, Instance.ended_at),
            ),
            Instance.price_usd_h,
            booked.c.usd,
            Instance.unsettled_usd,
            booked.c.until,
        )
        .join(GrantRow, GrantRow.id == Instance.grant_id)
        .outerjoin(booked, booked.c.instance_id == Instance.id)
        .where(Instance.session_id.in_(session_ids), Instance.sent_at.is_not(None), ~never)
    )
    return [
        UsedTime(session_id, approval_id, sent_at, until, price, sum(filter(None, amounts), Decimal(0)), booked_until)
        for session_id, approval_id, sent_at, until, price, *amounts, booked_until in (await tx.execute(query)).all()
    ]
