"""Logs of a machine for its people, through a real login; and every reason why there is none."""

from __future__ import annotations

import pytest

from bot.rules.nodes.machine_logs import LogSource
from bot.services.nodes.machine_logs import read
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
