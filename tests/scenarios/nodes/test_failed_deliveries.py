"""What was not bought, found out on real machines: each has its sentence, is ended and booked, and is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bot.outbound.ssh_login import Followed, Ran, SshLogin
from bot.services.nodes.host_keys import reported_key
from bot.services.runtime.agent_archive import AgentArchive
from bot.services.runtime.ports import Reach, Reached
from ledger.engine.db import Database
from ledger.kernel.login_problem import LoginProblem
from ledger.queries.audit import read_books
from ledger.queries.nodes import node_of
from providers.sandbox.machines import Flaw
from providers.sandbox.nodes.process_nodes import ProcessNodes
from tests.providers.sandbox.nodes.machines import marked
from tests.scenarios.nodes.conftest import NODE_S
from tests.services.instances.test_gpu_checks import VERDICTS, fails
from tests.support.clock import SteppedClock
from tests.support.matrix import clouds_with
from tests.support.stack import LOOK_S
from tests.support.wire import RealReach
from tests.support.world import World, checked_world

pytestmark = pytest.mark.slow


@dataclass
class AfterReport:
    """Reads no host key before the newest machine's agent reported one: the test's clock jumps, its agent's doesn't."""

    behind: Reach
    db: Database

    async def probe(self, host: str, port: int) -> Reached:
        return await self.behind.probe(host, port)

    async def host_key(self, host: str, port: int, kind: str | None = None) -> str | None:
        async with asyncio.timeout(NODE_S):
            while not await self._reported():  # noqa: ASYNC110 # The agent's process sets no event.
                await asyncio.sleep(LOOK_S)
        return await self.behind.host_key(host, port, kind)

    async def _reported(self) -> bool:
        newest = max((await read_books(self.db)).instances, key=lambda row: row.created_at)
        async with self.db.read() as tx:
            return reported_key(await node_of(tx, newest.id)) is not None

    async def run(self, login: SshLogin, command: str, *, stdin: str = "", timeout_s: float) -> Ran:
        return await self.behind.run(login, command, stdin=stdin, timeout_s=timeout_s)

    async def follow(self, login: SshLogin, command: str, *, timeout_s: float) -> Followed | LoginProblem:
        return await self.behind.follow(login, command, timeout_s=timeout_s)


@pytest.fixture
async def w(sqlite_db: Database, clock: SteppedClock, tmp_path: Path, agent_file: Path) -> AsyncIterator[World]:
    """A world whose machines are real, and whose clock jumps."""
    nodes = ProcessNodes(tmp_path / "nodes", waits=True)
    try:
        async with checked_world(sqlite_db, clock, heal=True, processes=nodes) as built:
            assert isinstance(built.ctx.reach, RealReach)
            built.ctx.reach.keys = True
            built.ctx = replace(built.ctx, agent=AgentArchive.read(agent_file))
            yield built
    finally:
        await nodes.close()
    assert marked(tmp_path) == []


@pytest.mark.parametrize("flaw", [flaw for flaw in VERDICTS if flaw is not Flaw.OTHER_HOST_KEY])
async def test_a_failed_delivery_is_named_ended_booked_and_replaced(w: World, flaw: Flaw) -> None:
    clouds = ("vast",) if flaw is Flaw.OLD_DRIVER else clouds_with(ssh=True)
    await fails(w, flaw, clouds[-1 - list(VERDICTS).index(flaw) % len(clouds)])


@pytest.mark.parametrize("cloud", clouds_with(ssh=True))
async def test_a_server_with_another_host_key_than_the_agent_reports_is_a_failed_delivery(w: World, cloud: str) -> None:
    w.ctx = replace(w.ctx, reach=AfterReport(w.ctx.reach, w.ctx.db))
    await fails(w, Flaw.OTHER_HOST_KEY, cloud)
