"""Migrations: what is due, what they say of their sessions, and which sessions may be moved."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.event_kind import EventKind
from ledger.kernel.job_state import JobState
from ledger.kernel.states import RequestState, SessionState
from ledger.kernel.steps.relocation_step import OVER, TAKES_OVER, TARGET_MAY_RUN, MigrationStep
from ledger.models import Migration, Request, Session
from ledger.queries.runs.relocations import (
    StoredTargetPlace,
    due_migrations,
    is_moving,
    is_taken_over,
    last_migration_of,
    migrations_of,
    notified_since,
    open_migration_of,
    sessions_to_move,
    sources_of_moves,
    taken_over_by,
    target_places,
    waiting_target,
)
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)
DONE, FAILED, CHECKED = MigrationStep.DONE, MigrationStep.FAILED, MigrationStep.CHECKED


async def running(tx: Tx, **values: Any) -> Session:
    """A running session."""
    return await rows.session(tx, SessionState.RUNNING, **values)


async def target_of(tx: Tx, row: Migration, state: SessionState = SessionState.PROVISIONING) -> Session:
    """The session of a migration's own request."""
    return await rows.session(tx, state, of=await tx.get_one(Request, row.request_id))


def id_of(row: Migration | Session | None) -> str | None:
    """The id of a row, if there is one."""
    return row.id if row is not None else None


async def test_the_looks_that_are_longest_due_come_first(db: Database) -> None:
    async with db.write() as tx:
        later, sooner, same = [await rows.migration(tx, await running(tx), due_at=START + n * HOUR) for n in (2, 1, 1)]
        await rows.migration(tx, await running(tx), due_at=START + 3 * HOUR)
        await rows.migration(tx, await running(tx), DONE)
    async with db.read() as tx:
        assert await due_migrations(tx, START, 9) == []
        assert await due_migrations(tx, START + 2 * HOUR, 9) == [sooner.id, same.id, later.id]
        assert await due_migrations(tx, START + 2 * HOUR, 2) == [sooner.id, same.id]


@pytest.mark.parametrize("step", MigrationStep)
async def test_what_a_step_says_of_both_sessions(db: Database, step: MigrationStep) -> None:
    async with db.write() as tx:
        source, bystander = await running(tx), await running(tx)
        row = await rows.migration(tx, source, step)
        target = await target_of(tx, row)
        await rows.migration(tx, await running(tx))
    is_open = row.id if step not in OVER else None
    async with db.read() as tx:
        for session_id in (source.id, target.id):
            assert id_of(await open_migration_of(tx, session_id)) == is_open
        # Before the new machine was approved the run only may move.
        assert await is_moving(tx, source.id) == (step not in OVER and step is not CHECKED)
        assert await is_taken_over(tx, source.id) == (step in TAKES_OVER)
        assert id_of(await waiting_target(tx, source.id)) == (
            target.id if step in TAKES_OVER or step is MigrationStep.ENDING else None
        )
        # The target paused the source, so it did not take over from it.
        assert await taken_over_by(tx, source.id) is None
        # Nothing of it says anything about other sessions, nor about the target as if it were the source.
        for session_id in (target.id, bystander.id):
            assert not await is_moving(tx, session_id)
            assert not await is_taken_over(tx, session_id)
            assert await waiting_target(tx, session_id) is None
        assert await open_migration_of(tx, bystander.id) is None


@pytest.mark.parametrize("step", MigrationStep)
async def test_a_target_that_may_have_started_takes_over(db: Database, step: MigrationStep) -> None:
    async with db.write() as tx:
        source = await running(tx)
        row = await rows.migration(tx, source, step, started_at=START, taken_over_at=START)
    async with db.read() as tx:
        # A target that was started and is being ended keeps its source waiting until its end is proved.
        assert await is_taken_over(tx, source.id) == (step in TAKES_OVER or step is MigrationStep.ENDING)
        assert await taken_over_by(tx, source.id) == (row.request_id if step in TARGET_MAY_RUN else None)


@pytest.mark.parametrize("state", SessionState)
async def test_a_target_waits_while_it_is_being_made_or_runs(db: Database, state: SessionState) -> None:
    async with db.write() as tx:
        source = await running(tx)
        target = await target_of(tx, await rows.migration(tx, source, MigrationStep.READY), state)
    waits = state in {SessionState.PROVISIONING, SessionState.RUNNING}
    async with db.read() as tx:
        assert id_of(await waiting_target(tx, source.id)) == (target.id if waits else None)


async def test_the_request_from_which_each_move_comes(db: Database) -> None:
    async with db.write() as tx:
        source = await running(tx)
        done, now = await rows.migration(tx, source, FAILED), await rows.migration(tx, source)
        unread = await rows.migration(tx, await running(tx))
        bare = await rows.request(tx)
    async with db.read() as tx:
        requests = [done.request_id, now.request_id, bare.id, source.request_id]
        assert await sources_of_moves(tx, requests) == dict.fromkeys(requests[:2], source.request_id)
        assert unread.request_id not in await sources_of_moves(tx, requests)
        assert await sources_of_moves(tx, []) == {}


async def test_the_newest_migration_of_a_session_as_source_or_target(db: Database) -> None:
    async with db.write() as tx:
        source, bystander = await running(tx), await running(tx)
        failed = await rows.migration(tx, source, FAILED)
        newer = await rows.migration(tx, source, DONE)
        first, second = await target_of(tx, failed), await target_of(tx, newer)
        onwards = await rows.migration(tx, second)
    async with db.read() as tx:
        newest = {source: newer, first: failed, second: onwards, bystander: None}
        for session, row in newest.items():
            assert id_of(await last_migration_of(tx, session.id, session.request_id)) == id_of(row)
        sessions = {session.id: row.id for session, row in newest.items() if row is not None}
        stored = await migrations_of(tx, [session.id for session in newest])
        assert {key: row.id for key, row in stored.items()} == sessions
        # Only sessions that were named have one.
        assert {key: row.id for key, row in (await migrations_of(tx, [source.id])).items()} == {source.id: newer.id}
        assert await migrations_of(tx, []) == {}


@pytest.mark.parametrize("below", ["s3://runs/my_run", "s3://runs/my_run/"])
async def test_places_where_targets_save(db: Database, below: str) -> None:
    places = ("s3://runs/my_run/r2", "s3://runs/my_run/r3")
    beside = ("s3://runs/my_run", "s3://runs/my_run2/r2", "s3://runs/myxrun/r2", None)
    async with db.write() as tx:
        first = await rows.migration(
            tx, await running(tx), MigrationStep.STARTED, target_place=places[0], started_at=START
        )
        over: dict[str, Any] = {"started_at": START, "ended_at": START + HOUR, "saved_step": None}
        second = await rows.migration(tx, await running(tx), FAILED, target_place=places[1], **over)
        for place in beside:
            await rows.migration(tx, await running(tx), target_place=place)
        target = await target_of(tx, first)
        machine = await rows.instance(tx, of=target)
        again = await rows.replacement(tx, machine)
        silent = await rows.replacement(tx, again)
        await rows.node(tx, machine, at=START, report={"step": 11})
        await rows.node(tx, again, at=START, report={"step": 12})
        await rows.node(tx, silent, report={"step": 99})  # It has not checked in yet.
        other = await target_of(tx, second)
        await rows.node(tx, await rows.instance(tx, of=other), at=START, report={})
    async with db.read() as tx:
        assert await target_places(tx, below) == [
            StoredTargetPlace(places[0], MigrationStep.STARTED, 10, START, None, [{"step": 11}, {"step": 12}]),
            StoredTargetPlace(places[1], FAILED, None, START, START + HOUR, []),
        ]
        assert await target_places(tx, "s3://elsewhere") == []


async def to_move(db: Database, *, limit: int = 9, since: datetime = START) -> list[str]:
    """The sessions to move that end more than an hour after the start."""
    async with db.read() as tx:
        return [session.id for session in await sessions_to_move(tx, START + HOUR, since, limit)]


async def test_the_last_to_end_is_moved_first(db: Database) -> None:
    async with db.write() as tx:
        soon, late, same = [await running(tx, deadline=START + hours * HOUR) for hours in (2, 9, 9)]
    assert await to_move(db) == [late.id, same.id, soon.id]
    assert await to_move(db, limit=2) == [late.id, same.id]


async def test_sessions_that_can_not_be_moved_are_left_out(db: Database) -> None:
    async with db.write() as tx:
        moves = await running(tx)
        for state in set(SessionState) - {SessionState.RUNNING}:
            await rows.session(tx, state, deadline=START + 9 * HOUR)
        await running(tx, nodes=2)
        await running(tx, gpu="volume:data")
        await running(tx, deadline=START + HOUR)
        await running(tx, deadline=None)
        for job_state in JobState:
            await running(tx, job_state=job_state)
        await running(tx, early_end_at=START)
    assert await to_move(db) == [moves.id]


@pytest.mark.parametrize("step", MigrationStep)
async def test_neither_side_of_an_open_move_is_moved_again(db: Database, step: MigrationStep) -> None:
    async with db.write() as tx:
        source = await running(tx)
        target = await target_of(tx, await rows.migration(tx, source, step), SessionState.RUNNING)
    assert await to_move(db) == (sorted([source.id, target.id]) if step in OVER else [])


async def test_an_owner_hears_of_cheaper_places_once_in_a_while(db: Database) -> None:
    kind = EventKind.MIGRATION_SUGGESTED
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.APPROVED, requester=rows.BEN.ref)
        notified, theirs = await running(tx), await running(tx, of=request)
        again = await running(tx)
        await rows.event(tx, kind, notified.id, at=START, data={"to": ["vast/SE", "runpod/RO"]})
        await rows.event(tx, EventKind.SESSION_MOVED, theirs.id, at=START, data={"to": ["vast/NO"]})
        await rows.event(tx, kind, notified.id, at=START + HOUR, data={"to": ["runpod/RO", "lambda/US"]})
        await rows.event(tx, kind, "ses_other", at=START + HOUR, data={})
    # One message is about all machines of an owner.
    assert await to_move(db, since=START + HOUR) == [theirs.id]
    assert await to_move(db, since=START + HOUR + timedelta(seconds=1)) == [notified.id, theirs.id, again.id]
    async with db.read() as tx:
        assert await notified_since(tx, START) == {"vast/SE", "runpod/RO", "lambda/US"}
        assert await notified_since(tx, START + HOUR) == {"runpod/RO", "lambda/US"}
        assert await notified_since(tx, START + 2 * HOUR) == set()
