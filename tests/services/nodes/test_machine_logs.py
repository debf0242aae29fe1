"""Logs of a machine for its people, through a real login; and every reason why there is none."""

from __future__ import annotations

import pytest

from bot.rules.access.scopes import Scope
from bot.rules.nodes.machine_logs import LogSource
from bot.services.access.api_keys import Principal
from bot.services.nodes.machine_logs import LONGEST, LOOK_EVERY, LogStream, follow, read
from bot.services.runtime.commands import Reply
from ledger.core import amend
from ledger.kernel.actor import Actor
from ledger.models import Instance, Session
from tests.services.nodes.test_key_writes import machine
from tests.support.wire import RealReach
from tests.support.world import ALICE, BOB, World


@pytest.fixture
async def session(w: World) -> Session:
    """A ready session whose machine has a log of its job."""
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True
    await w.running(candidates=("vast",))
    return (await w.books()).sessions[-1]


async def asked(w: World, session: Session, who: Actor = ALICE, source: LogSource = LogSource.JOB) -> Reply:
    return await read(w.ctx, session.id, who, source, 2)


async def test_its_owner_reads_the_end_and_nobody_else(w: World, session: Session) -> None:
    short = session.short_id
    none = await asked(w, session)
    assert none.code == "no_log"
    assert none.sentence.startswith(f"The machine of session {short} has no job log yet.")
    (await machine(w))[1].files["job.log"] = b"step 1\nstep 2\n\x1b[32mstep 3\x1b[0m hf_abcdefghijklmnopqrst\n"
    found = await asked(w, session)
    assert found.ok
    assert found.data["lines"] == ("step 2", "step 3 …")
    assert found.sentence == f"The end of the job log of session {short}."
    assert (await asked(w, session, BOB)).code == "not_yours"
    other = await asked(w, session, source=LogSource.SERVE)
    assert other.sentence == f"The machine of session {short} has no model server log yet."


async def test_a_machine_that_does_not_answer_is_named(w: World, session: Session) -> None:
    row = (await w.books()).instances[0]
    async with w.ctx.db.write() as tx:
        await amend(tx, Instance, row.id, ssh_port=9)
    reply = await asked(w, session)
    assert (reply.code, "did not answer over SSH" in reply.sentence) == ("no_log", True)


async def streamed(w: World, session: Session, who: Actor = ALICE) -> LogStream | Reply:
    person = Principal("", who, who, frozenset({Scope.SESSIONS_READ}))
    return await follow(w.ctx, session.id, person, LogSource.JOB, 2)


async def test_a_log_is_followed_until_the_session_ends(w: World, session: Session) -> None:
    inside = (await machine(w))[1]
    inside.files["job.log"] = b"step 1\nstep 2\nstep 3\n"
    refused = await streamed(w, session, BOB)
    assert isinstance(refused, Reply)
    assert refused.code == "not_yours"
    stream = await streamed(w, session)
    assert isinstance(stream, LogStream)
    lines = stream.lines()
    assert await anext(lines) == ("step 2", "step 3")
    inside.files["job.log"] += b"step 4 hf_abcdefghijklmnopqrst\nhalf"
    assert await anext(lines) == ("step 4 …",)
    assert (await w.end(session.request_id)).ok
    w.clock.advance(LOOK_EVERY.total_seconds())
    assert [one async for one in lines if one] == [("half",)]
    assert stream.ended == f"Session {session.short_id} is ending."


async def test_a_stream_ends_with_its_connection_and_after_a_while(w: World, session: Session) -> None:
    (await machine(w))[1].files["job.log"] = b"one\n"
    stream = await streamed(w, session)
    assert isinstance(stream, LogStream)
    lines = stream.lines()
    assert await anext(lines) == ("one",)
    await w.engine.ssh_ports.close_all()
    assert [one async for one in lines if one] == []
    assert stream.ended == "The connection to the machine ended."
    refused = await streamed(w, session)
    assert isinstance(refused, Reply)
    assert "did not answer over SSH" in refused.sentence


async def test_a_stream_ends_after_a_quarter_of_an_hour(w: World, session: Session) -> None:
    (await machine(w))[1].files["job.log"] = b"one\n"
    stream = await streamed(w, session)
    assert isinstance(stream, LogStream)
    lines = stream.lines()
    assert await anext(lines) == ("one",)
    w.clock.advance(LONGEST.total_seconds())
    assert [one async for one in lines if one] == []
    assert stream.ended == "A stream lasts 15 minutes. Start it again."
