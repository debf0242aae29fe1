"""Sum up what a run may spend under earlier approvals: every decision on it is judged on top of that.

A run is one request or several: those that moved it, and those that asked it again from its checkpoint.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from bot.rules.approvals.authority import NOTHING, Authority, EarlierAuthority
from bot.rules.jobs.stored import job_of
from ledger.core import Tx
from ledger.kernel import money
from ledger.kernel.request_kind import ABOUT_SESSION, RequestKind
from ledger.kernel.states import ENDED_SESSION, RequestState, SessionState
from ledger.models import Request
from ledger.queries.decisions import parents_of
from ledger.queries.runs.authority import (
    ApprovedAmount,
    RunSession,
    UsedTime,
    approved_amounts,
    sessions_of_runs,
    used_times,
)
from ledger.queries.runs.relocations import sources_of_moves

#: Requests that are judged together with the one that is their parent.
_OF_PARENT = ABOUT_SESSION | {RequestKind.OVERRIDE_12H}


def run_of(request: Request) -> str:
    """Return the id of the run that a request belongs to: its first request."""
    return request.run_id or request.id


def is_figure(request: Request) -> bool:
    """Whether a request asks to confirm what a whole session costs, and so buys nothing more."""
    return request.kind is RequestKind.OVERSPEND and not job_of(request.job).makes_volume


async def earlier(tx: Tx, request: Request, now: datetime) -> EarlierAuthority:
    """Return what the run of a request may spend under earlier approvals."""
    return (await earlier_of(tx, [request], now))[request.id]


async def earlier_of(tx: Tx, requests: Sequence[Request], now: datetime) -> Mapping[str, EarlierAuthority]:
    """Return what the run of each request may spend under earlier approvals, in a fixed number of queries.

    A session that runs counts with all that was approved for it. One that ended, or that gives way to the machine which
    is decided on, counts with what it used. The hours of the session that is extended are in its job already.
    """
    return await _earlier_of(tx, requests, now, _own)


async def in_all(tx: Tx, request: Request, now: datetime) -> EarlierAuthority:
    """Return what the running session of a request may cost in all, its hours included, and its run besides it."""
    return (await _earlier_of(tx, [request], now, _in_force))[request.id]


async def _earlier_of(
    tx: Tx, requests: Sequence[Request], now: datetime, of_session: Callable[[_Rows, RunSession, datetime], Authority]
) -> Mapping[str, EarlierAuthority]:
    """Return what the run of each request may spend; `of_session` sums up the session that is decided on."""
    parents = await parents_of(tx, requests)
    subjects = {one.id: parents.get(one.parent_id or "", one) if one.kind in _OF_PARENT else one for one in requests}
    sessions = await sessions_of_runs(tx, {run_of(one) for one in subjects.values()})
    if not sessions:
        return dict.fromkeys(subjects, EarlierAuthority())
    ids = {one.session_id for one in sessions}
    rows = _Rows.of(await approved_amounts(tx, ids), await used_times(tx, ids))
    moving = [one.id for one in subjects.values() if one.kind is RequestKind.MIGRATE]
    sources = await sources_of_moves(tx, moving) if moving else {}
    found = {}
    for request_id, subject in subjects.items():
        session, others = NOTHING, NOTHING
        for one in sessions:
            if one.run_id != run_of(subject):
                continue
            if one.request_id == subject.id:
                session = session + of_session(rows, one, now)
            elif one.request_id == sources.get(subject.id):
                # Its hours until the request for the move: the target was asked for what was left of them then.
                others = others + _used(rows.used[one.session_id], now, subject.created_at)
            else:
                others = others + _other(rows, one, now)
        found[request_id] = EarlierAuthority(session, others)
    return found


@dataclass(frozen=True, slots=True)
class _Rows:
    """Hold what was approved and used, by session."""

    approved: Mapping[str, list[ApprovedAmount]]
    used: Mapping[str, list[UsedTime]]

    @classmethod
    def of(cls, approved: Iterable[ApprovedAmount], used: Iterable[UsedTime]) -> _Rows:
        by_session: defaultdict[str, list[ApprovedAmount]] = defaultdict(list)
        times: defaultdict[str, list[UsedTime]] = defaultdict(list)
        for amount in approved:
            by_session[amount.session_id].append(amount)
        for time in used:
            times[time.session_id].append(time)
        return cls(by_session, times)


def _own(rows: _Rows, session: RunSession, now: datetime) -> Authority:
    """Return what the session may spend that is decided on; before its next approval it counts with what it used."""
    if session.request_state is not RequestState.APPROVED:
        return _used(rows.used[session.session_id], now, now)
    amounts = _in_force(rows, session, now)
    return Authority(amounts.worst_usd, amounts.expected_usd)


def _other(rows: _Rows, session: RunSession, now: datetime) -> Authority:
    over = ENDED_SESSION | {SessionState.TERMINATING}
    if session.state in over or session.request_state is not RequestState.APPROVED:
        return _used(rows.used[session.session_id], now, now)
    return _in_force(rows, session, now)


def _in_force(rows: _Rows, session: RunSession, now: datetime) -> Authority:
    """Return what is approved for a session, with what it used under approvals that others replaced."""
    amounts = rows.approved[session.session_id]
    first = [one for one in amounts if one.version == session.quote_version]
    since = min((one.at for one in first), default=None)
    longer = [one for one in amounts if one.version is None and since is not None and one.at >= since]
    ids = {one.approval_id for one in first}
    before = [one for one in rows.used[session.session_id] if one.approval_id not in ids]
    approved = Authority(
        sum((one.total_usd for one in (*first, *longer)), Decimal(0)),
        sum((one.expected_usd for one in (*first, *longer)), Decimal(0)),
        session.hours,
    )
    return approved + _used(before, now, now)


def _used(times: Iterable[UsedTime], now: datetime, until: datetime) -> Authority:
    """Return what instances used until now, and their hours up to `until`; the running hour counts in full."""
    usd, hours = Decimal(0), Decimal(0)
    for one in times:
        end = one.until or max(until, one.sent_at)
        hours += _hours(one.sent_at, min(end, until))
        usd += one.booked_usd
        if one.until is None:
            usd += money.worst(one.price_usd_h * _hours(one.booked_until or one.sent_at, now))
    return Authority(usd, usd, hours)


def _hours(since: datetime, until: datetime) -> Decimal:
    return max(Decimal(str((until - since).total_seconds())) / 3600, Decimal(0))
