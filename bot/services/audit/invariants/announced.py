"""Check that people are notified before a termination, and operators of every outcome that stays unknown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from bot.services.audit.invariants.world import Violation
from ledger.kernel.actor import SYSTEM
from ledger.kernel.end_reason import EARLY, EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, NotificationKind, OrphanState, SessionState
from ledger.models import Event, Instance
from ledger.queries.audit import Books

#: Longer than any cloud's W, and than the time until a failing step pages the operators.
UNCLEAR_FOR = timedelta(minutes=30)
SCHEDULER = "system:scheduler"
OVER = frozenset({SessionState.TERMINATING, SessionState.TERMINATED})


def check(books: Books, now: datetime) -> list[Violation]:
    """Check automatic ends, losses, orphans that returned, and creates whose outcome stays unknown."""
    return [*_interruptions(books), *_cuts(books), *_returned(books), *_unknown_outcomes(books, now)]


def _interruptions(books: Books) -> Iterator[Violation]:
    """Check that an end that the service ordered, and a loss, was announced.

    There must be a message in the request's channel that is not younger than the order.
    """
    at = {
        (note.subject, note.destination): note.created_at
        for note in books.notifications
        if note.kind == NotificationKind.SESSION_INTERRUPTED
    }
    channels = {request.id: request.channel for request in books.requests}
    end_codes = {session.id: session.end_code for session in books.sessions if session.state in OVER}
    moments = {event.subject: event.at for event in books.events if _ordered_here(event)}
    for row in books.instances:
        ordered_at = moments.get(row.id) if row.outcome_code != end_codes.get(row.session_id) else None
        said_at = at.get((f"{row.session_id}/{row.id}", channels.get(row.request_id, "")))
        lost = row.outcome_code == EndReason.LOST and said_at is None
        if lost or (ordered_at is not None and (said_at is None or said_at > ordered_at)):
            yield Violation(
                "nothing ends unannounced", row.id, f"{row.outcome_code}: its owner and operators were not notified"
            )


def _cuts(books: Books) -> list[Violation]:
    """Check that an early end ordered by the scheduler has a message that is older than the order."""
    said: dict[str, datetime] = {}
    for note in books.notifications:
        if note.kind == NotificationKind.SESSION_IDLE:
            session_id = note.subject.partition("/")[0]
            said[session_id] = min(said.get(session_id, note.created_at), note.created_at)
    codes = {session.id: session.end_code for session in books.sessions}
    return [
        Violation(
            "nothing ends unannounced", event.subject, f"{codes[event.subject]}: its owner was not notified before"
        )
        for event in books.events
        if event.kind == EventKind.SESSION_MOVED and event.after == SessionState.TERMINATING
        if event.actor == SCHEDULER and codes.get(event.subject) in EARLY
        if event.subject not in said or said[event.subject] >= event.at
    ]


def _ordered_here(event: Event) -> bool:
    return (
        event.kind == EventKind.INSTANCE_MOVED
        and event.after == InstanceState.TERMINATING
        and event.actor == SYSTEM.ref
    )


def _returned(books: Books) -> Iterator[Violation]:
    """Check that no reconcile pass ended an instance that returned within its approved time.

    Such an instance was lost without a termination and is listed again. One that an operator condemned at an earlier
    return is ended at the next one.
    """
    rows = {row.id: row for row in books.instances}
    hours = {grant.id: grant.hours for grant in books.grants}
    over = {session.id for session in books.sessions if session.state in OVER and session.end_code != EndReason.LOST}
    condemned = {
        event.subject: event.at
        for event in books.events
        if event.after == OrphanState.CONDEMNED and event.actor == SYSTEM.ref
    }
    people = {e.subject for e in books.events if e.after == OrphanState.CONDEMNED and e.actor != SYSTEM.ref}
    ordered = {(orphan.cloud, orphan.ref) for orphan in books.orphans if orphan.id in people}
    for orphan in books.orphans:
        if (orphan.cloud, orphan.ref) in ordered:
            continue
        row, at = rows.get(orphan.instance_id or ""), condemned.get(orphan.id)
        if row is None or at is None or row.session_id in over or not _was_lost(row, orphan.ref):
            continue
        if at < (row.sent_at or row.created_at) + timedelta(hours=float(Decimal(hours[row.grant_id]))):
            text = f"{orphan.ref} counted as lost, came back, and was terminated at nobody's request"
            yield Violation("healthy instances are not killed", row.id, text)


def _was_lost(row: Instance, ref: str) -> bool:
    return row.state is InstanceState.GONE and row.ref == ref and row.terminate_asked_at is None


def _unknown_outcomes(books: Books, now: datetime) -> list[Violation]:
    paged = {
        note.subject.partition("/")[0] for note in books.notifications if note.kind == NotificationKind.OPERATOR_PAGE
    }
    return [
        Violation("unknown outcomes are announced", row.id, f"it has been {row.state} since {row.sent_at}")
        for row in books.instances
        if row.state is InstanceState.UNKNOWN and row.id not in paged
        if now - (row.sent_at or row.created_at) > UNCLEAR_FOR
    ]
