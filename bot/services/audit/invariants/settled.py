"""Check what must hold once faults are off and time has passed: nothing stuck, forgotten or undelivered."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from bot.services.audit.invariants.world import KEPT, Truth, Violation, row_of
from ledger.kernel.states import (
    GrantState,
    InboxState,
    InstanceState,
    NotificationState,
    OrphanState,
    RequestState,
    SessionState,
)
from ledger.queries.audit import Books

#: States in which a row waits for the service alone.
BUSY = frozenset(
    {
        RequestState.QUOTING,
        SessionState.PROVISIONING,
        SessionState.TERMINATING,
        InstanceState.READY,
        InstanceState.SENDING,
        InstanceState.UNKNOWN,
        InstanceState.TERMINATING,
        OrphanState.SEEN,
        OrphanState.CONDEMNED,
    }
)
#: A session may outlive its deadline by the time that its end takes to be proved.
END_TAKES = timedelta(minutes=5)
RUNNING = frozenset({SessionState.RUNNING, SessionState.STOPPED})


def check(books: Books, now: datetime) -> list[Violation]:
    """Check liveness from the ledger alone."""
    rows: list[Any] = [*books.requests, *books.sessions, *books.instances, *books.orphans]
    found = [Violation("nothing is stuck", row.id, f"it is still {row.state}") for row in rows if row.state in BUSY]
    found += [
        Violation("expired sessions are closed", row.id, f"it should have ended at {row.deadline}")
        for row in books.sessions
        if row.state in RUNNING and row.deadline is not None and row.deadline + END_TAKES < now
    ]
    found += [
        Violation("expired requests are closed", row.id, f"it should have expired at {row.expires_at}")
        for row in books.requests
        if row.state in (RequestState.PENDING, RequestState.WAITING) and row.expires_at + END_TAKES < now
    ]
    found += [
        Violation(
            "the outbox is drained",
            note.id,
            f"{note.kind} is {note.state}, shown {note.sent_version} of {note.version}",
        )
        for note in books.notifications
        if note.state is NotificationState.PENDING
    ]
    found += [
        Violation("the inbox is worked off", row.key, f"it is {row.state}")
        for row in books.inbox
        if row.state is InboxState.NEW
    ]
    open_rows = {row.grant_id for row in books.instances if row.ended_at is None}
    return found + [
        Violation("nothing is stuck", grant.id, "it is open and no instance row uses it")
        for grant in books.grants
        if grant.state is GrantState.OPEN and grant.id not in open_rows and grant.until < now
    ]


def no_orphans(books: Books, truth: Truth) -> Iterator[Violation]:
    """Check that every live instance with one of our labels belongs to a row in use, or is quarantined."""
    waiting = {(s.cloud, s.ref) for s in books.orphans if s.state is OrphanState.QUARANTINED}
    for item in truth["instances"]:
        row = row_of(books, item["name"])
        if not item["alive"] or row is None or (item["cloud"], item["ref"]) in waiting:
            continue
        if row.state not in KEPT or row.ref != item["ref"]:
            text = f"{item['cloud']} still has {item['ref']}, and its row is {row.state} with {row.ref}"
            yield Violation("no orphan", row.id, text)
    kept = [row for row in books.instances if row.state in KEPT]
    alive = {(item["cloud"], item["ref"]) for item in truth["instances"] if item["alive"]}
    yield from (
        Violation("no ghost", row.id, f"{row.cloud} does not have {row.ref} any more")
        for row in kept
        if (row.cloud, row.ref) not in alive
    )
