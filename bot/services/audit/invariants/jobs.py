"""Check that every job has one result, with one event: recorded with the end of its session at the latest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bot.rules.jobs.stored import job_of
from bot.services.audit.invariants.world import Violation
from ledger.kernel.event_kind import EventKind
from ledger.kernel.job_state import JOB_OVER
from ledger.kernel.states import ENDED_SESSION, OPEN_INSTANCE
from ledger.queries.audit import Books


def check(books: Books) -> list[Violation]:
    """Check the result of every session's job."""
    return [*_check(books), *_shared(books)]


def _shared(books: Books) -> Iterator[Violation]:
    """Check that each command of a shared queue runs on one machine: the next gets it when that one is proved gone."""
    gone = {row.id: row.ended_at for row in books.instances if row.state not in OPEN_INSTANCE}
    sharing = {row.id for row in books.sessions if row.dealt_commands}
    last: dict[tuple[str, int], str] = {}
    for claim in sorted(books.claims, key=lambda one: (one.session_id, one.number, one.round)):
        key = (claim.session_id, claim.number)
        if key in last and last[key] not in gone:
            yield Violation("a command runs on one machine", claim.session_id, f"{claim.number} is on {last[key]} too")
        last[key] = claim.instance_id
    for result in (one for one in books.results if one.session_id in sharing):
        if last.get((result.session_id, result.number)) != result.instance_id:
            said = f"{result.number} has a result of {result.instance_id}, which has it not"
            yield Violation("a command runs on one machine", result.session_id, said)


def _check(books: Books) -> Iterator[Violation]:
    ended = Counter(event.subject for event in books.events if event.kind == EventKind.JOB_ENDED)
    jobs = {row.id for row in books.requests if job_of(row.job).has_command}
    for row in books.sessions:
        if row.job_state is None and row.state in ENDED_SESSION and row.request_id in jobs:
            yield Violation("an ended session's job has a result", row.id, f"it is {row.state}, and has none")
        if row.job_state is not None and row.job_state not in JOB_OVER:
            yield Violation("a result is final", row.id, f"it is {row.job_state}")
        if ended[row.id] != (row.job_state is not None):
            yield Violation("a job ends once", row.id, f"it has {ended[row.id]} events of its end")
