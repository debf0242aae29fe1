"""Agents' check-ins, and the sessions that they may end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bot.rules.jobs.stored import stored_job
from ledger.engine.db import Database
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Session
from ledger.queries.nodes import (
    StartupJob,
    Suspect,
    amend_node,
    due_for_key,
    due_for_login,
    listened_at,
    listening_since,
    node_contexts,
    node_of,
    nodes_of,
    note_listening,
    open_exchange,
    reporting,
    startup_jobs,
    suspects,
    take_login,
    write_checkins,
)
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import somebody_waits

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("step", "minutes", "approved_minutes"),
    [(CheckpointStep.HELD, 5, 5), (CheckpointStep.SAVING, -5, 0), (CheckpointStep.PASSED, 5, 0), (None, None, 0)],
)
async def test_a_checkpoint_hold_is_approved_while_the_termination_waits(
    db: Database, step: CheckpointStep | None, minutes: int | None, approved_minutes: int
) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.TERMINATING)
        assert session.deadline is not None
        until = None if minutes is None else session.deadline + minutes * MINUTE
        row = await rows.instance(
            tx, InstanceState.TERMINATING, of=session, checkpoint_step=step, checkpoint_until=until
        )
        await rows.node(tx, row)
        found = await node_contexts(tx, [row.id])
    assert found[row.id].approved_until == session.deadline + approved_minutes * MINUTE


async def test_check_ins_are_taken_from_instances_that_are_there(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING, early_end_at=START + MINUTE)
        live = await rows.instance(tx, InstanceState.LIVE, of=session, wanted="stop", ssh_host="10.0.0.7")
        others = {state: await rows.instance(tx, state) for state in InstanceState if state is not InstanceState.LIVE}
        for row in (live, *others.values()):
            await rows.node(tx, row, seq=4)
        silent = await rows.instance(tx, InstanceState.LIVE)
    asked = [live.id, silent.id, *(row.id for row in others.values())]
    over = (InstanceState.READY, InstanceState.GONE, InstanceState.REJECTED, InstanceState.TOMBSTONE)
    async with db.write() as tx:
        found = await node_contexts(tx, asked)
        assert [*found] == sorted([live.id, *(row.id for state, row in others.items() if state not in over)])
        one = found[live.id]
        assert (one.node.seq, one.instance_state, one.wanted, one.host) == (4, InstanceState.LIVE, "stop", "10.0.0.7")
        assert (one.session_state, one.deadline, one.early_end_at) == (
            SessionState.RUNNING,
            session.deadline,
            session.early_end_at,
        )
        assert [*await node_contexts(tx, [live.id])] == [live.id]
        written = others[InstanceState.STOPPED].id
        await write_checkins(
            tx,
            [
                {"of_instance": live.id, "seq": 5, "at": START, "report": {"gpu": 7}},
                {"of_instance": written, "seq": 6, "at": None, "report": {}},
            ],
        )
        await write_checkins(tx, [])
        await amend_node(tx, written, wanted=["save"])
        await amend_node(tx, silent.id, seq=9)
    async with db.read() as tx:
        nodes = await nodes_of(tx, asked)
        assert {row.id: nodes[row.id].seq for row in (live, *others.values())} == {
            row.id: {live.id: 5, written: 6}.get(row.id, 4) for row in (live, *others.values())
        }
        assert silent.id not in nodes
        assert (nodes[live.id].at, nodes[live.id].report, nodes[live.id].wanted) == (START, {"gpu": 7}, [])
        assert nodes[written].wanted == ["save"]
        assert await node_of(tx, silent.id) is None
        mine = await node_of(tx, live.id)
        assert mine is not None
        assert mine.seq == 5


async def test_a_restart_opens_one_more_exchange_where_one_was_made(db: Database) -> None:
    later = START + MINUTE
    async with db.write() as tx:
        made = [await rows.instance(tx, InstanceState.LIVE) for _ in range(3)]
        never, closed, opened = made
        await rows.node(tx, never)
        await rows.node(tx, closed, checkin_hash="c" * 64)
        await rows.node(tx, opened, checkin_hash="d" * 64, exchange_open_at=START)
        for row in (never, closed, opened):
            await open_exchange(tx, row.id, later)
    async with db.read() as tx:
        nodes = await nodes_of(tx, [row.id for row in made])
        assert [nodes[row.id].exchange_open_at for row in made] == [None, later, START]


async def test_two_groups_of_check_ins_wait_for_each_other(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        row = await rows.instance(tx)
        await rows.node(tx, row)

    async def count() -> int:
        async with pg_db.write() as tx:
            return (await node_contexts(tx, [row.id]))[row.id].node.seq

    async with pg_db.write() as tx:
        await node_contexts(tx, [row.id])
        counting = asyncio.create_task(count())
        await somebody_waits(pg_db, counting)
        await amend_node(tx, row.id, seq=1)
    assert await counting == 1
    async with pg_db.read() as tx:
        assert (await node_contexts(tx, [row.id]))[row.id].node.seq == 1


async def test_running_sessions_that_may_end_early(db: Database) -> None:
    silent, idle = START - 5 * MINUTE, START - 30 * MINUTE
    well = {"at": silent + SECOND, "idle_since": idle + SECOND}
    async with db.write() as tx:
        expected = []
        for n, (node, early_end_at, state, instance_state, is_suspect) in enumerate(
            (
                ({"at": silent}, None, SessionState.RUNNING, InstanceState.LIVE, True),
                (well | {"idle_since": idle}, None, SessionState.RUNNING, InstanceState.LIVE, True),
                (well | {"work_over_at": START}, None, SessionState.RUNNING, InstanceState.LIVE, True),
                (well, START, SessionState.RUNNING, InstanceState.LIVE, True),
                (well, None, SessionState.RUNNING, InstanceState.LIVE, False),
                ({}, None, SessionState.RUNNING, InstanceState.LIVE, False),
                ({"at": silent}, None, SessionState.STOPPED, InstanceState.LIVE, False),
                ({"at": silent}, None, SessionState.RUNNING, InstanceState.TERMINATING, False),
            )
        ):
            session = await rows.session(tx, state, at=START + n * SECOND, early_end_at=early_end_at)
            row = await rows.instance(tx, instance_state, of=session)
            await rows.node(tx, row, **node)
            if is_suspect:
                expected.append(Suspect(session.id, row.id))
        without_agent = await rows.session(tx, SessionState.RUNNING, early_end_at=START)
        await rows.instance(tx, InstanceState.LIVE, of=without_agent)
    async with db.read() as tx:
        assert await suspects(tx, silent, idle) == expected
        assert await reporting(tx, silent) == (5, 1)
        assert await reporting(tx, silent - SECOND) == (5, 0)


async def test_a_pause_of_ours_is_not_the_agents_silence(db: Database) -> None:
    async def check(second: int, name: str = "look") -> float:
        async with db.write() as tx:
            since = await listening_since(tx, name, 60.0, START + second * SECOND)
        return (since - START).total_seconds()

    async with db.read() as tx:
        assert await listened_at(tx, "look") is None
    assert [await check(second) for second in (0, 60, 90)] == [0, 0, 0]
    assert await check(10, "other") == 10
    assert [await check(second) for second in (151, 160)] == [151, 151]
    # A clock that was set back moves nothing back.
    assert await check(155) == 151
    async with db.read() as tx:
        assert await listened_at(tx, "look") == START + 160 * SECOND


async def test_host_keys_that_are_to_be_looked_at(db: Database) -> None:
    before = START + MINUTE
    ready: dict[str, Any] = {"reachable_at": START, "ssh_host": "10.0.0.7", "status": "running"}
    async with db.write() as tx:
        late = await rows.instance(tx, **ready, host_key_at=before)
        early = await rows.instance(tx, **ready, host_key_at=START)
        never = await rows.instance(tx, **ready)
        await rows.instance(tx, **ready, host_key_at=before + SECOND)
        await rows.instance(tx, InstanceState.STOPPED, **ready)
        for other in ({"reachable_at": None}, {"ssh_host": None}, {"status": "booting"}, {"wanted": "stop"}):
            await rows.instance(tx, **(ready | other))
    async with db.read() as tx:
        assert [row.id for row in await due_for_key(tx, before, 9)] == [never.id, early.id, late.id]
        assert [row.id for row in await due_for_key(tx, before, 2)] == [never.id, early.id]


async def test_machines_that_are_to_be_logged_in_to(db: Database) -> None:
    answers: dict[str, Any] = {"ssh_host": "10.0.0.7", "status": "running", "host_key_at": START, "login_key": "k"}
    async with db.write() as tx:
        late = await rows.instance(tx, **answers, live_at=START + SECOND)
        early = await rows.instance(tx, **answers, live_at=START)
        await rows.instance(tx, InstanceState.TERMINATING, **answers)
        others: list[dict[str, Any]] = [{name: None} for name in ("ssh_host", "host_key_at", "login_key")]
        for other in (*others, {"status": "booting"}, {"reachable_at": START}):
            await rows.instance(tx, **(answers | other))
        again = await rows.instance(tx, **answers)
        (await tx.get_one(Session, again.session_id)).ready_at = START  # It was ready, and was started again.
    async with db.read() as tx:
        assert [row.id for row in await due_for_login(tx, START, 9)] == [early.id, late.id]
        assert [row.id for row in await due_for_login(tx, START, 1)] == [early.id]
    async with db.write() as tx:
        assert await take_login(tx, early.id, START, START + MINUTE)
        assert not await take_login(tx, early.id, START + SECOND, START + MINUTE)
    async with db.read() as tx:
        assert [row.id for row in await due_for_login(tx, START, 9)] == [late.id]
        assert [row.id for row in await due_for_login(tx, START + MINUTE, 9)] == [early.id, late.id]
    async with db.write() as tx:  # Its holder died.
        assert await take_login(tx, early.id, START + MINUTE, START + 2 * MINUTE)


async def test_time_that_somebody_travelled_counts_as_listened_to(db: Database) -> None:
    async with db.write() as tx:
        await note_listening(tx, "look", START)  # A check that never ran has listened to nothing.
        assert await listened_at(tx, "look") is None
        await listening_since(tx, "look", 60.0, START)
        await note_listening(tx, "look", START + 3600 * SECOND)
        await note_listening(tx, "look", START)
        assert await listened_at(tx, "look") == START + 3600 * SECOND
        assert await listening_since(tx, "look", 60.0, START + 3630 * SECOND) == START


async def test_the_job_of_a_machine_for_its_start_up(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx)
    async with db.read() as tx:
        assert await startup_jobs(tx, [row.id]) == {
            row.id: StartupJob(
                "vast", stored_job(rows.JOB), 1, None, None, None, None, row.session_id, 1, row.request_id, row.n, False
            )
        }
        assert await startup_jobs(tx, []) == {}
