"""Check that nothing ends while waiting is cheap and something would be lost, and that no grace costs too much."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.instances.unplanned_end import cost_until
from bot.services.audit.invariants.world import Violation
from ledger.kernel.actor import SYSTEM
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, SessionState
from ledger.kernel.steps.grace import AtRisk, GraceChoice, GraceOutcome
from ledger.models import Event
from ledger.queries.audit import Books

KEPT = "nothing ends while waiting is cheap and something would be lost"
COST = "no grace costs more than it may"
ONE = "a session has one machine in grace"
#: Ends that the rule decides about. Machines that share a queue lose nothing with one of them.
JUDGED = frozenset(
    {
        EndReason.BROKEN,
        EndReason.OUTBID,
        EndReason.STOPPED_THERE,
        EndReason.RESTARTING,
        EndReason.NO_HEARTBEAT,
        EndReason.WRONG_GPUS,
    }
)
#: How long a rate may have changed before the next pass sees it.
UNSEEN = timedelta(minutes=10)


def check(books: Books, now: datetime) -> list[Violation]:
    """Check every unplanned end and every grace."""
    return [*_ends(books), *_costs(books, now), *_one_each(books)]


def _ends(books: Books) -> Iterator[Violation]:
    verdicts: dict[str, Event] = {}
    for event in books.events:
        if event.kind == EventKind.INSTANCE_NOT_KEPT:
            verdicts[event.subject] = event
    ordered = {event.subject for event in books.events if _is_own_order(event)}
    sessions = {session.id: session for session in books.sessions}
    for row in books.instances:
        session = sessions[row.session_id]
        judged = row.outcome_code in JUDGED and row.reachable_at is not None and row.terminate_asked_at is not None
        if not judged or row.id not in ordered or session.dealt_commands:
            continue
        verdict = verdicts.get(row.id)
        if verdict is None or not _allows(verdict):
            yield Violation(KEPT, row.id, f"it ended as {row.outcome_code}: {verdict.data if verdict else 'unjudged'}")


def _is_own_order(event: Event) -> bool:
    """Whether an instance was ended by the service itself, or with its session by the scheduler."""
    to = event.after in (InstanceState.TERMINATING, SessionState.TERMINATING)
    return event.kind == EventKind.INSTANCE_MOVED and to and event.actor in (SYSTEM.ref, "system:scheduler")


def _allows(verdict: Event) -> bool:
    data = verdict.data or {}
    dear = Decimal(str(data.get("waiting_usd", 0))) > Decimal(str(data.get("limit_usd", 0)))
    return data.get("at_risk") == AtRisk.NOTHING or dear or data.get("choice") == GraceChoice.GIVE_UP


def _costs(books: Books, now: datetime) -> Iterator[Violation]:
    ended = {row.id: row.terminate_asked_at or row.ended_at for row in books.instances}
    for grace in books.graces:
        # One whose machine has ended is closed by the next pass.
        at = grace.ended_at or min(now, ended[grace.instance_id] or now)
        cost_usd = grace.spent_usd
        if grace.ended_at is None:
            cost_usd = cost_until(grace.spent_usd, grace.usd_h, grace.rated_at, at)
        late_usd = cost_until(Decimal(0), grace.usd_h, at - UNSEEN, at)
        # What recovered beside its replacement costs its full rate until it is stopped.
        if cost_usd > grace.limit_usd + late_usd and grace.outcome is not GraceOutcome.RECOVERED:
            yield Violation(COST, grace.id, f"it cost ${cost_usd} of at most ${grace.limit_usd}")


def _one_each(books: Books) -> Iterator[Violation]:
    open_in: dict[str, str] = {}
    nodes = {session.id: session.nodes for session in books.sessions}
    for grace in books.graces:
        if grace.ended_at is None and nodes[grace.session_id] == 1:
            if grace.session_id in open_in:
                yield Violation(ONE, grace.session_id, f"{open_in[grace.session_id]} and {grace.id} are open")
            open_in[grace.session_id] = grace.id
