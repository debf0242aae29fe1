"""Two sessions' real agents and the real service: what opens one machine's API opens nothing on the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.agent.api.access import Access
from bot.agent.deadline import Deadline, Signed
from bot.agent.own_folder import FOLDER
from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.services.nodes import node_api
from bot.services.nodes.api_identity import api_identity
from bot.services.nodes.node_api import Opened
from ledger.engine.db import Database
from ledger.queries.nodes import nodes_of
from tests.agent.api_machine import Machine, free_port
from tests.agent.test_api_process import _is_up, until
from tests.agent.test_processes import Start, start
from tests.services.nodes.test_deadlines import NODE_URL, Node
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import ALICE, World, checked_world

__all__ = ["start"]  # A fixture.
pytestmark = pytest.mark.slow


@dataclass
class Between:
    """Somebody between a machine and the service: check-ins come every second, and an answer may be another one's."""

    url: str
    deadline: dict[str, str] | None = None
    answers: int = 0
    caller: httpx.AsyncClient = field(default_factory=lambda: httpx.AsyncClient(trust_env=False, timeout=20))

    async def pass_on(self, request: Request) -> Response:
        headers = {name: request.headers[name] for name in ("authorization", "content-type")}
        reply = await self.caller.post(f"{self.url}/agent/v1/checkin", headers=headers, content=await request.body())
        said: dict[str, Any] = {**reply.json(), "next_in_s": 1}
        if self.deadline is not None:
            said["deadline"] = self.deadline
            self.answers += 1
        return Response(json.dumps(said), reply.status_code)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/agent/v1/checkin", self.pass_on, methods=["POST"])])


@dataclass
class Rented:
    """A session's machine: its agent runs, its API is up, and its owner has a token."""

    node: Node
    machine: Machine
    between: Between
    folder: Path
    token: str = ""

    def newest(self) -> Signed:
        """The newest message that its agent accepted."""
        kept = json.loads((self.folder / "state.json").read_text())
        return Signed(kept["message"], kept["signature"], kept["at_boot_s"])


@asynccontextmanager
async def rented(w: World, url: str, start: Start, folder: Path, number: int) -> AsyncIterator[Rented]:
    node, port, between = Node(w, "vast", number), free_port(), Between(url)
    row = next(one for one in (await w.books()).instances if one.id == node.settings.instance)
    machine = Machine.__new__(Machine)
    identity = api_identity(w.ctx.labels, row.id)
    machine.port, machine.certificate, machine.key = port, identity.certificate, identity.key
    found = Rented(node, machine, between, folder / f"run{number}")
    async with serving(between.app()) as relay:
        own = {"GPU_SHOPPER_CHECKIN_URL": f"{relay}/agent/v1/checkin", "GPU_SHOPPER_API_PORT": str(port)}
        start({**node.settings.environment, **own, FOLDER: str(found.folder)})
        async with asyncio.timeout(60):
            while not await _claimed(w, row.id, port):
                w.clock.advance(1)
                await asyncio.sleep(0.05)
        opened = (await node_api.make_token(w.ctx, row.session_id, ALICE)).data["opened"]
        assert isinstance(opened, Opened)
        found.token = opened.token
        await asyncio.to_thread(until, lambda: _is_up(machine, found.token))
        yield found
        await between.caller.aclose()


async def _claimed(w: World, instance: str, port: int) -> bool:
    async with w.ctx.db.read() as tx:
        nodes = await nodes_of(tx, [instance])
    return instance in nodes and nodes[instance].api_port == port


async def test_a_token_and_a_signed_message_of_one_session_open_nothing_of_another(
    sqlite_db: Database, clock: SteppedClock, start: Start, tmp_path: Path
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.ctx = replace(w.ctx, node_url=NODE_URL)
        for _ in range(2):
            await w.running(candidates=("vast",))
        async with (
            serving(build_api(Dependencies(w.ctx, ApiSettings("C0GPU")), {})) as url,
            rented(w, url, start, tmp_path, 0) as a,
            rented(w, url, start, tmp_path, 1) as b,
        ):
            assert a.node.settings.instance != b.node.settings.instance

            def status(of: Rented, token: str) -> int:
                return of.machine.get("status", token).status_code

            for of, token, answered in ((a, a.token, 200), (b, b.token, 200), (b, a.token, 401), (a, b.token, 401)):
                assert await asyncio.to_thread(status, of, token) == answered
            message = a.newest()
            # From now on b's agent gets a's message as the answer to each of its check-ins.
            b.between.deadline = {"message": message.message, "signature": message.signature}
            async with asyncio.timeout(30):
                while b.between.answers < 3:  # noqa: ASYNC110 # The agent asks every second.
                    await asyncio.sleep(0.05)
            assert await asyncio.to_thread(status, b, a.token) == 401
            assert await asyncio.to_thread(status, b, b.token) == 200
            # Where the reporter passed it on all the same, the API would refuse it, too: it is signed, for another one.
            ours, theirs = (one.node.settings for one in (a, b))
            assert ours.public_key == theirs.public_key
            assert Access(Deadline(ours.instance, ours.public_key)).accept(message)
            access = Access(Deadline(theirs.instance, theirs.public_key))
            assert not access.accept(message)
            assert not access.is_let_in(f"Bearer {a.token}")
