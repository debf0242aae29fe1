"""What own sessions that ended showed: reports, times, and the hours that were billed."""

from __future__ import annotations

from datetime import timedelta

from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Request
from ledger.queries.runs.ended import reports_of_ended
from ledger.queries.runs.times import instances_of_ended
from ledger.queries.runs.used import any_billed_before, billed_times
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)


async def test_the_reports_of_sessions_that_ended_since_then(db: Database) -> None:
    async with db.write() as tx:
        old = await rows.session(tx, SessionState.TERMINATED, ended_at=START)
        await rows.node(tx, await rows.instance(tx, InstanceState.GONE, of=old), report={"step": 1})
        ended = await rows.session(tx, SessionState.TERMINATED, ended_at=START + HOUR)
        first = await rows.instance(tx, InstanceState.GONE, of=ended)
        await rows.node(tx, first, report={"step": 2})
        second = await rows.replacement(tx, first, InstanceState.GONE)
        await rows.node(tx, second, report={"step": 3}, made_at=START + HOUR)
        await rows.node(tx, await rows.instance(tx), report={"step": 4})  # Its session runs.
        job = (await tx.get_one(Request, ended.request_id)).job
    async with db.read() as tx:
        found = await reports_of_ended(tx, START + HOUR)
        assert [(session.id, asked, report["step"]) for session, asked, report in found] == [
            (ended.id, job, 3),
            (ended.id, job, 2),
        ]


async def test_the_newest_instances_of_sessions_that_ended(db: Database) -> None:
    async with db.write() as tx:
        old = await rows.session(tx, SessionState.TERMINATED, at=START, ended_at=START + HOUR)
        lone = await rows.instance(tx, InstanceState.GONE, of=old)
        new = await rows.session(tx, SessionState.TERMINATED, at=START + HOUR, ended_at=START + 2 * HOUR)
        first = await rows.instance(tx, InstanceState.GONE, of=new)
        await rows.node(tx, first, report={"step": 1})
        second = await rows.replacement(tx, first, InstanceState.GONE)
        await rows.instance(tx)  # Its session runs.
    async with db.read() as tx:
        found = await instances_of_ended(tx, START + HOUR, 9)
        assert [(row.id, report) for row, report in found] == [
            (first.id, {"step": 1}),
            (second.id, None),
            (lone.id, None),
        ]
        assert [row.id for row, _ in await instances_of_ended(tx, START + HOUR, 1)] == [first.id]
        assert [row.id for row, _ in await instances_of_ended(tx, START + 2 * HOUR, 9)] == [first.id, second.id]


async def test_what_was_billed_in_a_time(db: Database) -> None:
    async with db.read() as tx:
        assert not await any_billed_before(tx, START + HOUR)
    async with db.write() as tx:
        over = await rows.instance(tx, InstanceState.GONE, ended_at=START + HOUR)
        stopped = await rows.instance(tx, InstanceState.STOPPED, billing_until=START + 2 * HOUR)
        runs = await rows.instance(tx, at=START + HOUR)
        await rows.instance(tx, InstanceState.READY)  # It was never billed.
    async with db.read() as tx:
        found = await billed_times(tx, START + HOUR, START + 3 * HOUR)
        assert {(one.session_id, one.since, one.until) for one in found} == {
            (stopped.session_id, START, START + 2 * HOUR),
            (runs.session_id, START + HOUR, None),
        }
        assert [one.session_id for one in await billed_times(tx, START, START + HOUR)] == sorted(
            [over.session_id, stopped.session_id]
        )
        assert await any_billed_before(tx, START + HOUR)
        assert not await any_billed_before(tx, START)
