"""Queues that several machines share: which machine has which command, and what has ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sqlalchemy import select

from bot.rules.jobs.stored import job_of
from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.models import Approval, CommandClaim, Instance, Request, Session
from ledger.queries.jobs.command_claims import add_claims, ended_counts, shared_queues, sharing_sessions
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)


async def sharing(tx: Tx, *queue: str, state: SessionState = SessionState.RUNNING) -> Session:
    """A session whose machines share a queue of these commands."""
    request = await rows.request(tx, RequestState.APPROVED, job=replace(rows.JOB, nodes=2, queue=queue))
    return await rows.session(tx, state, of=request, nodes=2, dealt_commands=len(queue))


async def machine(tx: Tx, of: Session, n: int, state: InstanceState = InstanceState.LIVE) -> Instance:
    """One of the machines that share the queue of a session."""
    request = await tx.get_one(Request, of.request_id)
    under = await rows.grant(tx, request, GrantState.USED, seq=n, by=None if n == 1 else await first_vote(tx, of))
    return await rows.instance(tx, state, of=of, under=under, n=n, node_rank=n - 1)


async def first_vote(tx: Tx, of: Session) -> Approval:
    """The approval of a session's request."""
    return (await tx.scalars(select(Approval).where(Approval.request_id == of.request_id))).one()


async def test_a_shared_queue_with_its_results_claims_and_machines(db: Database) -> None:
    async with db.write() as tx:
        session, other = await sharing(tx, "a", "b", "c", "d"), await sharing(tx, "x")
        bare, unread = await sharing(tx, "y", "z"), await sharing(tx, "w")
        states = (
            InstanceState.GONE,
            InstanceState.LIVE,
            InstanceState.TERMINATING,
            InstanceState.REJECTED,
            InstanceState.TOMBSTONE,
            InstanceState.SENDING,
        )
        machines = [await machine(tx, session, n, state) for n, state in enumerate(states, 1)]
        gone, live, ending, rejected, tombstone, sending = [row.id for row in machines]
        stranger, unread_row = await machine(tx, other, 1), await machine(tx, unread, 1)
        # The later round is stored first.
        for number, before, row_id in ((1, 1, live), (1, 0, gone), (2, 0, ending)):
            assert await add_claims(tx, session.id, row_id, [(number, before)], START) == [number]
        await add_claims(tx, other.id, stranger.id, [(1, 0)], START)
        await add_claims(tx, unread.id, unread_row.id, [(1, 0)], START)
        for number, exit_code in ((1, 0), (2, 3), (3, None)):
            await rows.command_result(tx, machines[0], number, exit_code)
        await rows.command_result(tx, stranger, 1, 1)
        await rows.command_result(tx, unread_row, 1, 1)
    async with db.read() as tx:
        queues = await shared_queues(tx, [session.id, other.id, bare.id])
        assert set(queues) == {session.id, other.id, bare.id}
        queue = queues[session.id]
        assert job_of(queue.job).queue == ("a", "b", "c", "d")
        # A command whose end nobody saw counts as failed.
        assert queue.failed == {1: False, 2: True, 3: True}
        assert queue.claims == {1: [gone, live], 2: [ending]}
        assert queue.machines == dict(zip([row.id for row in machines], states, strict=True))
        assert queue.over == {gone, rejected, tombstone}
        assert queue.live == {live}
        assert sending not in queue.over | queue.live
        assert (queues[other.id].claims, queues[other.id].failed) == ({1: [stranger.id]}, {1: True})
        empty = queues[bare.id]
        assert (job_of(empty.job).queue, empty.failed, empty.claims, empty.machines) == (("y", "z"), {}, {}, {})
        assert (empty.over, empty.live) == (frozenset(), frozenset())
        assert await shared_queues(tx, []) == {}


async def test_a_command_is_dealt_once_in_each_round(db: Database) -> None:
    async with db.write() as tx:
        session = await sharing(tx, "a", "b", "c")
        first, second = await machine(tx, session, 1), await machine(tx, session, 2)
        assert await add_claims(tx, session.id, first.id, [], START) == []
        assert await add_claims(tx, session.id, first.id, [(3, 0), (1, 0)], START) == [1, 3]
    async with db.write() as tx:
        # The first machine has two of these, and nobody has the third or one of them in its next round.
        assert await add_claims(tx, session.id, second.id, [(1, 0), (3, 0), (2, 0), (3, 1)], START + HOUR) == [2, 3]
        assert await add_claims(tx, session.id, first.id, [(2, 0)], START + HOUR) == []
    async with db.read() as tx:
        order = (CommandClaim.number, CommandClaim.round)
        stored = await tx.scalars(select(CommandClaim).order_by(*order))
        assert [(row.number, row.round, row.instance_id, row.dealt_at) for row in stored] == [
            (1, 0, first.id, START),
            (2, 0, second.id, START + HOUR),
            (3, 0, first.id, START),
            (3, 1, second.id, START + HOUR),
        ]


async def test_only_running_sessions_that_share_a_queue_are_listed(db: Database) -> None:
    async with db.read() as tx:
        assert await sharing_sessions(tx) == []
    async with db.write() as tx:
        sessions = [await sharing(tx, "a"), await sharing(tx, "b")]
        for state in set(SessionState) - {SessionState.RUNNING}:
            await sharing(tx, "a", state=state)
        await rows.session(tx, SessionState.RUNNING, nodes=2)  # A set.
        await rows.session(tx, SessionState.RUNNING)
    async with db.read() as tx:
        assert await sharing_sessions(tx) == sorted(session.id for session in sessions)


async def test_how_many_commands_are_done_and_how_many_failed(db: Database) -> None:
    async with db.write() as tx:
        session, good, bare = await sharing(tx, "a", "b", "c", "d"), await sharing(tx, "x"), await sharing(tx, "y")
        row, unread = await machine(tx, session, 1), await machine(tx, await sharing(tx, "z"), 1)
        for number, exit_code in ((1, 0), (2, 0), (3, 1), (4, None)):
            await rows.command_result(tx, row, number, exit_code)
        await rows.command_result(tx, await machine(tx, good, 1), 1)
        await rows.command_result(tx, unread, 1)
    async with db.read() as tx:
        assert await ended_counts(tx, [session.id, good.id, bare.id]) == {session.id: (2, 2), good.id: (1, 0)}
        assert await ended_counts(tx, []) == {}
