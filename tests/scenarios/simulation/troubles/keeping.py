"""Judge what the service ended by its own decision: nothing that could be lost, while waiting for it cost little.

The truth is the clouds' own: which machines could not work and since when, what they were billed meanwhile, and which
volumes are gone. The ledger says only whose decision an end was, and how much was approved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from http import HTTPStatus

from bot.rules.jobs.stored import job_of
from ledger.kernel.end_reason import APPROVED, EndGroup, EndReason, reasons
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.models import Instance, Session
from ledger.queries.audit import Books
from providers.sandbox.engine import CreateCall, TrueInstance
from tests.scenarios.simulation.troubles.kinds import Stretch, Troubles
from tests.scenarios.simulation.troubles.truth import Truth

#: The default of the policy: of the approved total, and at least.
GRACE_SHARE, GRACE_LEAST_USD = Decimal("0.05"), Decimal(1)
#: A waiting cost this near to the grace is judged neither way: prices are rounded, and an end is late by a look.
NEAR = Decimal("0.1")
#: Ends that the service decided upon. What costs more than was approved is a law of its own.
OWN = (reasons(EndGroup.FAILED) | reasons(EndGroup.UNUSED)) - {EndReason.BILLED_ABOVE_CAP}
#: A trouble that is over may still be read from an answer of before.
AFTER = timedelta(seconds=60)
HOUR_S = Decimal(3600)
#: A refused create is sent again after what its cloud asks, up to this; else not within so many seconds.
WAITS_S, AT_ONCE_S = 60.0, 5.0
#: Refusals of one request that are nearer than this follow one another.
AGAIN = timedelta(seconds=300)
LATE = timedelta(seconds=60)
NOT_LAUNCHED = frozenset({SessionState.FAILED, RequestState.PENDING, RequestState.QUOTING, RequestState.UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known from outside: the clouds' truth, the troubles that there were, and the time of now."""

    truth: Truth
    troubles: Troubles
    now: datetime


def broken(seen: Seen, books: Books) -> list[str]:
    """Name everything that was lost, or that waited for too much."""
    facts = Facts.of(books)
    true = {(each.cloud, each.ref): each for each in seen.truth.instances()}
    return [
        *(text for stretch in seen.troubles.stretches for text in _stretch(seen, facts, stretch, true)),
        *_volumes(seen.truth, facts),
        *_refusals(seen.truth, books, facts),
        *_jobs(seen.troubles, books, facts),
    ]


@dataclass(frozen=True, slots=True)
class Facts:
    """The rows of the ledger by what names them."""

    rows: Mapping[tuple[str, str], Instance]
    labels: Mapping[str, Instance]
    sessions: Mapping[str, Session]
    approved_usd: Mapping[str, Decimal]
    hours: Mapping[str, Decimal]

    @classmethod
    def of(cls, books: Books) -> Facts:
        """Read them."""
        approved: dict[str, Decimal] = {}
        hours: dict[str, Decimal] = {}
        for grant in books.grants:
            adds = grant.kind in (GrantKind.CREATE, GrantKind.EXTEND) and grant.state is not GrantState.VOID
            if grant.session_id is not None and adds:
                approved[grant.session_id] = approved.get(grant.session_id, Decimal(0)) + grant.total_cap_usd
                hours[grant.session_id] = max(hours.get(grant.session_id, Decimal(0)), Decimal(grant.hours))
        rows = {(row.cloud, str(row.ref)): row for row in books.instances if row.ref}
        labels = {row.label: row for row in books.instances}
        return cls(rows, labels, {row.id: row for row in books.sessions}, approved, hours)

    def written_end(self, row: Instance) -> datetime:
        """When what was approved first ends."""
        hours = float(self.hours.get(row.session_id, Decimal(0)))
        return (row.sent_at or row.created_at) + timedelta(hours=hours)

    def grace_usd(self, session: Session) -> Decimal:
        """What waiting for a machine of this session may cost."""
        return max(GRACE_LEAST_USD, GRACE_SHARE * self.approved_usd.get(session.id, Decimal(0)))


def _stretch(seen: Seen, facts: Facts, stretch: Stretch, true: Mapping[tuple[str, str], TrueInstance]) -> Iterator[str]:
    at = (stretch.cloud, stretch.ref)
    row, machine = facts.rows.get(at), true[at]
    if row is None or at in seen.troubles.disturbed:
        return
    session, over_at = facts.sessions[row.session_id], seen.troubles.over_at.get(stretch, seen.now)
    until = min(over_at, machine.ended_at or seen.now)
    waited_usd = _billed_usd(seen, stretch, until)
    grace_usd = facts.grace_usd(session)
    if waited_usd > grace_usd * (1 + NEAR):
        yield f"no grace costs more than its limit: {at} cost ${waited_usd:.2f} of ${grace_usd:.2f} while it waited"
    was_ready = row.reachable_at is not None and row.reachable_at <= stretch.since
    ended_at = row.terminate_asked_at
    if not was_ready or row.outcome_code not in OWN or ended_at is None:
        return
    if not stretch.since < ended_at < over_at + AFTER:
        return
    # A session that failed afterwards has no end any more.
    approved_end = session.deadline or facts.written_end(row)
    left_h = Decimal(str(max((approved_end - stretch.since).total_seconds(), 0))) / HOUR_S
    would_cost_usd = seen.truth.meter(*at).total_rate_usd_h(stretch.since + timedelta(seconds=1)) * left_h
    if would_cost_usd <= grace_usd * (1 - NEAR):
        yield (
            f"nothing is lost where waiting costs little: {row.id} {at} ended as {row.outcome_code} "
            f"{(ended_at - stretch.since).total_seconds():.0f} s after: {stretch.kind}. Waiting until its end would "
            f"have cost ${would_cost_usd:.2f} of ${grace_usd:.2f}"
        )


def _billed_usd(seen: Seen, stretch: Stretch, until: datetime) -> Decimal:
    meter = seen.truth.meter(stretch.cloud, stretch.ref)
    return sum((meter.usd(part, until, stretch.since) for part in ("gpu", "storage")), Decimal(0))


def _volumes(truth: Truth, facts: Facts) -> Iterator[str]:
    """A volume is deleted by a person, or at its written end; that it was announced is an invariant."""
    for volume in truth.instances():
        if volume.cloud in truth.clouds or volume.ended_at is None:
            continue
        row = facts.rows.get((volume.cloud, volume.ref))
        if row is None:
            continue  # It landed late or twice, and nobody was told of it.
        if row.outcome_code == EndReason.ASKED:
            continue
        written_end = facts.written_end(row)
        if row.outcome_code not in APPROVED or volume.ended_at < written_end - LATE:
            yield (
                f"data are never deleted by bookkeeping: {row.id} {volume.ref} is gone at {volume.ended_at:%H:%M:%S}: "
                f"{row.outcome_code}; its written end is {written_end:%H:%M:%S}"
            )


def _refusals(truth: Truth, books: Books, facts: Facts) -> Iterator[str]:
    """The first create that was refused for calling too often leaves its approval as it is while it has to wait.

    Whether the next ones do is a matter of the launch's patience.
    """
    refused_at: dict[str, datetime] = {}
    unknown_at = {event.subject: event.at for event in books.events if event.after == InstanceState.UNKNOWN}
    for call in truth.engine.creates:
        row = _row(facts, call) if call.status == HTTPStatus.TOO_MANY_REQUESTS else None
        if row is None or row.sent_at is None:
            continue
        if row.id in unknown_at and unknown_at[row.id] <= call.at:
            continue  # Nobody read the refusal: the process that sent the call was killed, and the call came late.
        before, refused_at[row.request_id] = refused_at.get(row.request_id), call.at
        if before is not None and call.at < before + AGAIN:
            continue
        wait_s = call.retry_after_s or AT_ONCE_S
        if wait_s > WAITS_S:
            continue
        for event in books.events:
            is_about = event.subject in (row.session_id, row.request_id)
            moved = event.kind in (EventKind.SESSION_MOVED, EventKind.REQUEST_MOVED) and event.after in NOT_LAUNCHED
            soon = call.at < event.at < call.at + timedelta(seconds=wait_s)
            if is_about and moved and soon and event.actor.startswith("system"):
                yield (
                    f"a refusal for too many calls is waited out: {row.id} was refused at {call.at:%H:%M:%S}, and "
                    f"{event.subject} became {event.after} at {event.at:%H:%M:%S}: {event.reason}"
                )


def _row(facts: Facts, call: CreateCall) -> Instance | None:
    name = (call.name or "").lower()
    return next((row for label, row in facts.labels.items() if name.endswith(label.lower())), None)


def _jobs(troubles: Troubles, books: Books, facts: Facts) -> Iterator[str]:
    """A job that runs is work, and silence alone ends nothing while the machine answers."""
    jobs = {request.id: job_of(request.job) for request in books.requests}
    stopped = {(stretch.cloud, stretch.ref) for stretch in troubles.stretches} | troubles.disturbed
    for row in books.instances:
        session, job = facts.sessions[row.session_id], jobs[row.request_id]
        code = row.outcome_code or session.end_code
        if code == EndReason.IDLE and job.run:
            yield f"a job that runs is work: {row.id} ended as idle"
        if code == EndReason.NO_HEARTBEAT and (row.cloud, str(row.ref)) not in stopped:
            yield f"an unresponsive agent alone ends nothing: {row.id} ended as unresponsive, and its machine answered"
