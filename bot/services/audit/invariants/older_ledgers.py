"""Check that nothing is bought while the ledger is older than its records and nobody has accepted it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from bot.services.audit.invariants.world import Violation
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState
from ledger.queries.audit import Books

RULE = "an older ledger buys nothing"
#: Another replica may commit a launch at the moment at which the age is noticed here.
TOGETHER = timedelta(seconds=10)


def check(books: Books) -> list[Violation]:
    """Check every launch that was sent, by the journal."""
    spans = list(_spans(books))
    return [
        Violation(RULE, event.subject, f"it was sent at {event.at}, and the ledger had been found older at {since}")
        for event in books.events
        if event.kind == EventKind.INSTANCE_MOVED and event.after == InstanceState.SENDING and not event.reason
        for since, until in spans
        if event.actor == SYSTEM.ref and since + TOGETHER < event.at and (until is None or event.at < until)
    ]


def _spans(books: Books) -> Iterator[tuple[datetime, datetime | None]]:
    """Yield from when until when the ledger was found older and not accepted; None: it is so now."""
    accepted = sorted(event.at for event in books.events if event.kind == EventKind.LEDGER_ACCEPTED)
    for event in books.events:
        if event.kind == EventKind.LEDGER_OLDER:
            yield event.at, next((at for at in accepted if at >= event.at), None)
