"""Check that network volumes are bought, announced, deleted and mounted as was approved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bot.services.audit.invariants.announced import SCHEDULER
from bot.services.audit.invariants.world import Violation
from ledger.kernel.event_kind import EventKind
from ledger.kernel.job import volume_of
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import NotificationKind, SessionState
from ledger.models import Instance
from ledger.queries.audit import Books
from providers.cloud_names import machines_of, volumes_of

OWN_KIND = "a volume is a request of its own kind"
NOT_REPLACED = "a volume that is gone is not replaced"
ANNOUNCED = "no volume is deleted at its end unannounced"
BESIDE = "a machine is where its volume is"


def check(books: Books) -> list[Violation]:
    """Check volumes, and the machines that mount them."""
    rows: defaultdict[str, list[Instance]] = defaultdict(list)
    for row in books.instances:
        rows[row.session_id].append(row)
    return [*_volumes(books, rows), *_deletions(books), *_mounted(books, rows)]


def _volumes(books: Books, rows: dict[str, list[Instance]]) -> Iterator[Violation]:
    kinds = {request.id: request.kind for request in books.requests}
    for session in books.sessions:
        is_volume, asked = bool(volume_of(session.gpu)), kinds.get(session.request_id) is RequestKind.VOLUME
        mine = rows.get(session.id, [])
        there = [row for row in mine if row.cloud == volumes_of(row.cloud)]
        if is_volume is not asked or len(there) != (len(mine) if is_volume else 0):
            yield Violation(OWN_KIND, session.id, f"{session.gpu} came from a request of another kind")
        if is_volume and len([row for row in mine if row.live_at is not None]) > 1:
            yield Violation(NOT_REPLACED, session.id, "it had more than one volume")


def _deletions(books: Books) -> Iterator[Violation]:
    """Check that a volume which expired had a warning before its deletion was ordered."""
    volumes = {session.id for session in books.sessions if volume_of(session.gpu)}
    warned = {
        note.subject.partition("/")[0]: note.created_at
        for note in sorted(books.notifications, key=lambda one: one.created_at, reverse=True)
        if note.kind == NotificationKind.SESSION_ENDING
    }
    for event in books.events:
        ordered = event.kind == EventKind.SESSION_MOVED and event.after == SessionState.TERMINATING
        if ordered and event.actor == SCHEDULER and event.subject in volumes:
            said_at = warned.get(event.subject)
            if said_at is None or said_at >= event.at:
                yield Violation(ANNOUNCED, event.subject, "its owner was not warned before")


def _mounted(books: Books, rows: dict[str, list[Instance]]) -> Iterator[Violation]:
    jobs = {request.id: request.job for request in books.requests}
    for row in books.instances:
        job = jobs.get(row.request_id)
        if job is None or job.volume_session is None or row.sent_at is None:
            continue
        places = {(machines_of(one.cloud), one.offer.get("region")) for one in rows.get(job.volume_session, [])}
        if (row.cloud, row.offer.get("region")) not in places:
            yield Violation(BESIDE, row.id, f"it was launched at {row.cloud}, and volume {job.volume} is elsewhere")
