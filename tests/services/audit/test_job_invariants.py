"""The audit of jobs: silent on a right result, and loud about none, two, or one that is not final."""

from __future__ import annotations

from dataclasses import replace

from bot.services.audit.invariants import jobs
from ledger.kernel.job_state import JobState
from ledger.models import CommandClaim, CommandResult
from ledger.queries.audit import Books
from tests.support.agents import listening
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


async def test_a_command_that_two_machines_have_is_found(w: World) -> None:
    async with listening(w):
        request_id = await w.running(candidates=("lambda",), nodes=2, queue=("python a.py",))
        books = await w.books()
        (session,), (one, other) = books.sessions, books.instances
        now = w.clock.now()
        claims = tuple(
            CommandClaim(session_id=session.id, number=1, round=n, instance_id=row.id, dealt_at=now)
            for n, row in enumerate((one, other))
        )
        ended = {"exit_code": 0, "attempts": 1, "log_tail": "", "started_at": now, "ended_at": now, "recorded_at": now}
        result = CommandResult(session_id=session.id, number=1, instance_id=one.id, gpu=0, **ended)
        assert rules(replace(books, claims=claims[:1], results=(result,))) == set()
        assert rules(replace(books, claims=claims)) == {"a command runs on one machine"}
        assert rules(replace(books, claims=(), results=(result,))) == {"a command runs on one machine"}
        await w.end(request_id)
        await w.run(120, 30)
        assert rules(replace(await w.books(), claims=claims)) == set()
