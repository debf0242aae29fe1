"""The audit of jobs: silent on a right result, and loud about none, two, or one that is not final."""

from __future__ import annotations

from dataclasses import replace

from bot.services.audit.invariants import jobs
from ledger.kernel.job_state import JobState
from ledger.queries.audit import Books
from tests.support.world import World


def rules(books: Books) -> set[str]:
    return {one.rule for one in jobs.check(books)}


async def test_a_result_that_is_missing_doubled_or_not_final_is_found(w: World) -> None:
    request_id = await w.running(candidates=("vast",), run="true")
    assert rules(await w.books()) == set()
    await w.end(request_id)
    await w.run(120, 30)
    books = await w.books()
    assert rules(books) == set()
    (session,), (event,) = books.sessions, [one for one in books.events if one.kind == "job.ended"]
    assert rules(replace(books, events=())) == {"a job ends once"}
    assert rules(replace(books, events=(event, event))) == {"a job ends once"}
    session.job_state = JobState.SAVING
    assert rules(books) == {"a result is final"}
    session.job_state = None
    assert rules(books) == {"an ended session's job has a result", "a job ends once"}
