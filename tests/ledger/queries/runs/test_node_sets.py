"""Sets of machines: which lack one, which are ready, which failed first, and where the machines reach each other."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.states import ENDABLE_SESSION, PART_OF_SET, InstanceState, SessionState
from ledger.models import Approval, GrantRow, Instance, Request, Session
from ledger.queries.lookups import grants_of_session
from ledger.queries.runs.node_sets import SetMember, broken_sets, failed_first, is_ready, is_whole, members
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)
LIVE, GONE, REFUSED = InstanceState.LIVE, InstanceState.GONE, InstanceState.REJECTED


async def grant_of(tx: Tx, session: Session, seq: int) -> GrantRow:
    """One more grant of a session."""
    request = await tx.get_one(Request, session.request_id)
    grants = await grants_of_session(tx, session.id)
    by = await tx.get_one(Approval, grants[0].approval_id) if grants else None
    return await rows.grant(tx, request, by=by, seq=seq, session_id=session.id)


async def set_of(
    tx: Tx, *states: InstanceState, state: SessionState = SessionState.RUNNING, **values: Any
) -> tuple[Session, list[Instance]]:
    """A session of a set with one machine in each of these states."""
    session = await rows.session(tx, state, **({"nodes": len(states)} | values))
    machines = []
    for rank, machine_state in enumerate(states):
        under = await grant_of(tx, session, rank + 1)
        machines.append(await rows.instance(tx, machine_state, of=session, under=under, n=rank + 1, node_rank=rank))
    return session, machines


@pytest.mark.parametrize("state", InstanceState)
async def test_a_set_needs_each_of_its_machines(db: Database, state: InstanceState) -> None:
    whole = state in PART_OF_SET
    async with db.write() as tx:
        session, _ = await set_of(tx, LIVE, state)
        sharing, _ = await set_of(tx, LIVE, state, dealt_commands=4)
        last, _ = await set_of(tx, GONE, state, dealt_commands=4)
        lone, _ = await set_of(tx, state)
    async with db.read() as tx:
        wholes = [await is_whole(tx, one) for one in (session, sharing, last, lone)]
        # Those that share a queue work alone, and what happens to one machine alone is no matter of sets.
        assert wholes == [whole, True, whole, True]
        assert await broken_sets(tx) == ([] if whole else sorted([session.id, last.id]))


async def test_a_set_whose_machines_are_not_there_yet_lacks_them(db: Database) -> None:
    async with db.write() as tx:
        bare, _ = await set_of(tx, nodes=2)
        half, _ = await set_of(tx, LIVE, nodes=2)
        sharing, _ = await set_of(tx, LIVE, nodes=2, dealt_commands=4)
    async with db.read() as tx:
        assert await broken_sets(tx) == sorted([bare.id, half.id])
        assert [await is_whole(tx, one) for one in (bare, half, sharing)] == [False, False, True]


async def test_a_set_that_ends_already_is_not_listed(db: Database) -> None:
    async with db.write() as tx:
        sessions = {state: (await set_of(tx, LIVE, GONE, state=state))[0] for state in SessionState}
    async with db.read() as tx:
        assert await broken_sets(tx) == sorted(sessions[state].id for state in ENDABLE_SESSION)


async def test_a_set_is_ready_with_its_last_machine(db: Database) -> None:
    async with db.write() as tx:
        session, (first, second) = await set_of(tx, LIVE, LIVE)
        stopped, reached = await set_of(tx, LIVE, InstanceState.STOPPED)
        sharing, _ = await set_of(tx, LIVE, LIVE, dealt_commands=4)
        lone, _ = await set_of(tx, LIVE)
        first.reachable_at = START
        await tx.flush()
        assert not await is_ready(tx, session)
        second.reachable_at = START
        for row in reached:
            row.reachable_at = START
        await tx.flush()
        assert await is_ready(tx, session)
        # A stopped machine is not ready, though it was.
        assert not await is_ready(tx, stopped)
        assert await is_ready(tx, sharing)
        assert await is_ready(tx, lone)


async def test_the_machine_that_failed_first(db: Database) -> None:
    async def failing(
        tx: Tx, *ends: tuple[InstanceState, datetime | None, datetime | None]
    ) -> tuple[Session, list[Instance]]:
        session, machines = await set_of(tx, *(state for state, _, _ in ends))
        for row, (_, asked_at, ended_at) in zip(machines, ends, strict=True):
            row.terminate_asked_at, row.ended_at = asked_at, ended_at
        await tx.flush()
        return session, machines

    async with db.write() as tx:
        # The order of its end counts before the end itself, and a machine without either comes last.
        ordered, rows_of = await failing(
            tx,
            (REFUSED, None, None),
            (GONE, None, START + 2 * HOUR),
            (InstanceState.TERMINATING, START + HOUR, None),
            (GONE, START + 3 * HOUR, START),
            (LIVE, START, START),
        )
        same, rows_of_same = await failing(tx, (LIVE, None, None), (GONE, None, START), (GONE, None, START))
        timeless, rows_of_timeless = await failing(tx, (REFUSED, None, None), (REFUSED, None, None))
        whole, _ = await set_of(tx, LIVE, InstanceState.UNKNOWN)
    async with db.read() as tx:
        for session, row in (
            (ordered, rows_of[2]),
            (same, rows_of_same[1]),
            (timeless, rows_of_timeless[0]),
        ):
            failed = await failed_first(tx, session.id)
            assert failed is not None
            assert failed.id == row.id
        assert await failed_first(tx, whole.id) is None
        assert await failed_first(tx, "ses_none") is None


async def test_machines_of_running_sets_and_where_they_are_reached(db: Database) -> None:
    async with db.write() as tx:
        session, machines = await set_of(tx, LIVE, LIVE, GONE, LIVE)
        for row in machines[:3]:
            row.set_host = f"10.0.0.{row.n}"
        # The ranks are not the order of the creates.
        machines[0].node_rank, machines[1].node_rank = 1, 0
        pending, (pending_first, _) = await set_of(tx, LIVE, LIVE, state=SessionState.PROVISIONING)
        lone, (lone_row,) = await set_of(tx, LIVE)
        hostless, _ = await set_of(tx, LIVE, LIVE)
        unranked, (unranked_first, _) = await set_of(tx, LIVE, LIVE)
        unread, (unread_first, _) = await set_of(tx, LIVE, LIVE)
        for row in (pending_first, lone_row, unranked_first, unread_first):
            row.set_host = "10.0.1.1"
        unranked_first.node_rank = None
        await tx.flush()
    async with db.read() as tx:
        sessions = [one.id for one in (session, pending, lone, hostless, unranked)]
        # The third machine is gone, and nobody knows where the fourth is reached.
        assert await members(tx, sessions) == {
            session.id: (SetMember(machines[1].id, 0, "10.0.0.2"), SetMember(machines[0].id, 1, "10.0.0.1"))
        }
        assert set(await members(tx, [unread.id])) == {unread.id}
        assert await members(tx, []) == {}
