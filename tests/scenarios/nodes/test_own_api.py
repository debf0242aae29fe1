"""A whole run through the API of a real machine: upload, command, logs, status, save, done, and gone."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from bot.rules.values.labels import LabelKey
from bot.services.nodes.api_identity import api_identity
from ledger.queries.nodes import amend_node
from tests.scenarios.nodes.conftest import Build, NodeTown
from tests.scenarios.nodes.test_jobs import SPEED, is_over, reads_its_speed
from tests.support.stack import LABEL_KEY

pytestmark = pytest.mark.slow
TOKEN = "gpua_" + "t" * 43
CONFIG = b'{"lr": 0.001}' * 100_000


@asynccontextmanager
async def api_of(here: NodeTown) -> AsyncIterator[httpx.AsyncClient]:
    """A caller with the owner's token, who trusts only the certificate that the service derived for the machine."""
    node = await here.row_where(lambda row: row.api_port)
    async with here.town.db.write() as tx:
        await amend_node(tx, node.instance_id, api_token_hash=hashlib.sha256(TOKEN.encode()).hexdigest())
    context = ssl.create_default_context(cadata=api_identity(_labels(), node.instance_id).certificate)
    context.check_hostname = False
    url, headers = f"https://127.0.0.1:{node.api_port}/node/v1", {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, verify=context, trust_env=False, timeout=30) as caller:
        async with asyncio.timeout(30):
            while (await caller.get("/status")).status_code != 200:  # noqa: ASYNC110 # The machine tells nobody.
                await asyncio.sleep(0.05)  # The token counts from the next check-in on.
        yield caller


def _labels() -> LabelKey:
    return LabelKey("k7m2", bytes.fromhex(LABEL_KEY))  # The name of the deployment does not count.


async def _contains(caller: httpx.AsyncClient, text: str) -> None:
    async with asyncio.timeout(30), caller.stream("GET", "/logs", params={"follow": "true"}) as reply:
        async for line in reply.aiter_lines():
            if text in line:
                return


async def reads_its_log(here: NodeTown) -> None:
    """Alice reads in Slack how far the job is, from the end of its log."""
    session = (await here.town.books()).sessions[-1]
    await here.town.acked(here.town.ws.as_("alice").command(f"/gpu logs {session.id}"))
    await here.town.screens.told("alice", " of 800, 4200 tokens/s")


@pytest.mark.parametrize("cloud", ["vast", "runpod", "lambda", "tensordock"])
async def test_a_run_through_the_machines_own_api(build: Build, cloud: str) -> None:
    async with build(cloud, {"done_grace_s": 3}, clock_speed=SPEED) as here:
        await here.town.ask()
        await here.town.approve()
        await here.town.ready()
        async with api_of(here) as caller:
            digest = hashlib.sha256(CONFIG).hexdigest()
            asked: dict[str, str | int] = {"path": "run/config.json", "size": len(CONFIG), "sha256": digest}
            assert (await caller.post("/files/upload", params=asked, content=CONFIG)).json()["sha256"] == digest
            assert (await caller.get("/files/download/run/config.json")).content == CONFIG
            started = {"id": "train", "command": "start", "job": True, "cwd": "run"}
            started |= {"argv": ["train-stub", "--step-s", "0.05", "--steps", "800"]}
            for _ in range(2):  # The second call is the same, so it starts nothing.
                assert (await caller.post("/ml/command", json=started)).json()["state"] == "running"
            await _contains(caller, "step 20 of 800, 4200 tokens/s")
            await reads_its_speed(here)
            status = (await caller.get("/status")).json()
            assert (status["job"]["id"], status["progress"]["tokens_per_s"]) == ("train", 4200)
            assert (await caller.post("/ml/command", json={"id": "train", "command": "save"})).status_code == 200
            await here.row_where(lambda row: row.report.get("checkpoint_step"))
            await reads_its_log(here)
        await here.town.screens.wrote("alice", "Its job is done")
        await is_over(here)
