"""Check that network volumes are bought, announced, deleted and mounted as was approved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.jobs.stored import job_of
from bot.services.audit.invariants.announced import SCHEDULER
from bot.services.audit.invariants.world import Violation
from ledger.kernel.actor import SYSTEM
from ledger.kernel.end_reason import APPROVED, EndReason
from ledger.kernel.entry_kind import USED
from ledger.kernel.event_kind import EventKind
from ledger.kernel.proof import VOLUME_ABSENCE_OVER, ProofKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState, NotificationKind, OrphanState, SessionState
from ledger.kernel.volume_name import volume_of
from ledger.models import Instance
from ledger.queries.audit import Books
from providers.cloud_names import machines_of, volumes_of

OWN_KIND = "a volume is a request of its own kind"
NOT_REPLACED = "a volume that is gone is not replaced"
ANNOUNCED = "no volume is deleted at its end unannounced"
NOTICED = "no volume is deleted by its amount without its days of notices"
BY_NOBODY = "only a person, a written end or days of notices delete a volume"
LOOKED_FOR = "a volume counts as lost after an hour of its own reads"
BESIDE = "a machine is where its volume is"
EXCESS = "a volume costs at most its approvals, its limit beyond them and one day"
DAY = timedelta(days=1)
#: Hours for which a due deletion may be late: at night nobody is there to unmount a volume.
LATE_H = 6
OURS = frozenset({SCHEDULER, SYSTEM.ref})


def check(books: Books) -> list[Violation]:
    """Check volumes, and the machines that mount them."""
    rows: defaultdict[str, list[Instance]] = defaultdict(list)
    for row in books.instances:
        rows[row.session_id].append(row)
    return [
        *_volumes(books, rows),
        *_deletions(books),
        *_ends(books, rows),
        *_excess(books, rows),
        *_mounted(books, rows),
    ]


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
    """Check that the deletion of a volume that no person ordered came at its written end or after days of notices."""
    volumes = {session.id: session for session in books.sessions if volume_of(session.gpu)}
    warned = {
        note.subject.partition("/")[0]: note.created_at
        for note in sorted(books.notifications, key=lambda one: one.created_at, reverse=True)
        if note.kind == NotificationKind.SESSION_ENDING
    }
    for event in books.events:
        session = volumes.get(event.subject)
        ordered = event.kind == EventKind.SESSION_MOVED and event.after == SessionState.TERMINATING
        if session is None or not ordered or session.end_code == EndReason.LOST or event.actor not in OURS:
            continue
        said_at = warned.get(event.subject)
        if said_at is None or said_at >= event.at:
            yield Violation(ANNOUNCED, event.subject, "its owner was not warned before")
        if session.volume_grace_at is None or (session.volume_ends_at and event.at >= session.volume_ends_at):
            if session.deadline is None or event.at < session.deadline or session.end_code not in APPROVED:
                yield Violation(
                    BY_NOBODY, event.subject, f"{session.end_code}: nobody ordered it, and its end was later"
                )
            continue
        days = (event.at - session.volume_grace_at) // DAY
        given = len([at for at in notices(books, session.id) if at < event.at])
        if days < 1 or given < days:
            text = f"{given} notices were given in {days} days"
            yield Violation(NOTICED, event.subject, text)


def _excess(books: Books, rows: dict[str, list[Instance]]) -> Iterator[Violation]:
    """Check what a volume cost that its amounts no longer paid: at most its limit beyond them, and one day."""
    for session in books.sessions:
        if session.volume_excess_usd is None or session.volume_grace_at is None:
            continue
        mine = {row.id: row for row in rows.get(session.id, [])}
        used = [entry for entry in books.entries if entry.instance_id in mine and entry.kind in USED]
        spent_usd = sum((entry.amount_usd for entry in used), Decimal(0))
        approved_usd = sum(
            (grant.total_cap_usd for grant in books.grants if grant.session_id == session.id), Decimal(0)
        )
        rate_usd_h = max((row.price_usd_h for row in mine.values()), default=Decimal(0))
        # A day of notices, and the hours that are booked or deleted late.
        most_usd = approved_usd + session.volume_excess_usd + rate_usd_h * (24 + LATE_H)
        if spent_usd > most_usd and session.ended_at is not None:
            yield Violation(EXCESS, session.id, f"it cost ${spent_usd}, and at most ${most_usd} was possible")


def notices(books: Books, session_id: str) -> list[datetime]:
    """Return when the operators had notices that a volume's amount doesn't pay for it, one for each day."""
    mine = [one for one in books.notifications if one.subject.startswith(f"{session_id}/notice/")]
    return sorted(one.created_at for one in mine if one.kind == NotificationKind.OPERATOR_PAGE)


def _ends(books: Books, rows: dict[str, list[Instance]]) -> Iterator[Violation]:
    """Check each end of a volume that its session did not order, and each orphan that was to be deleted."""
    volumes = {row.id: row for mine in rows.values() for row in mine if row.cloud == volumes_of(row.cloud)}
    ended = {one.id for one in books.sessions if one.end_code and one.end_code != EndReason.LOST}
    for event in books.events:
        row = volumes.get(event.subject)
        if row is None or event.kind != EventKind.INSTANCE_MOVED:
            continue
        by_rule = (
            event.after == InstanceState.TERMINATING and event.actor == SYSTEM.ref and row.reachable_at is not None
        )
        if by_rule and row.session_id not in ended:
            yield Violation(BY_NOBODY, row.id, f"{row.outcome_code}: its session did not end")
        if event.after == InstanceState.GONE and row.outcome_code == EndReason.LOST:
            looks = [datetime.fromisoformat(at) for at in (event.data or {}).get("evidence", ())]
            own = (event.data or {}).get("proof") == ProofKind.OWN_READS
            if not own or not looks or max(looks) - min(looks) < VOLUME_ABSENCE_OVER:
                yield Violation(LOOKED_FOR, row.id, f"it was looked for {len(looks)} times")
    condemned = {e.subject for e in books.events if e.after == OrphanState.CONDEMNED and e.actor == SYSTEM.ref}
    for orphan in books.orphans:
        row = volumes.get(orphan.instance_id or "")
        if row is None or orphan.id not in condemned or row.live_at is None:
            continue
        if orphan.ref != row.ref or row.terminate_asked_at is None:
            yield Violation(BY_NOBODY, orphan.id, f"{orphan.ref} came back and was deleted at nobody's order")


def _mounted(books: Books, rows: dict[str, list[Instance]]) -> Iterator[Violation]:
    jobs = {request.id: job_of(request.job) for request in books.requests}
    for row in books.instances:
        job = jobs.get(row.request_id)
        if job is None or job.volume_session is None or row.sent_at is None:
            continue
        places = {(machines_of(one.cloud), one.offer.get("region")) for one in rows.get(job.volume_session, [])}
        if (row.cloud, row.offer.get("region")) not in places:
            yield Violation(BESIDE, row.id, f"it was launched at {row.cloud}, and volume {job.volume} is elsewhere")
