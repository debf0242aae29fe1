"""Jupyter on a real machine by its name: started behind a token, reached through a tunnel, and found again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from providers.sandbox.nodes.folders import authorize
from tests.api.door import ADA
from tests.cli.access.test_connect import PROGRAM
from tests.scenarios.nodes.conftest import NODE_S, Build, NodeTown, free_port
from tests.scenarios.nodes.test_jobs import SPEED
from tests.scenarios.nodes.test_own_api import _labels
from tests.support.stack import LOOK_S

pytestmark = pytest.mark.slow


def is_free(port: int) -> bool:
    """Whether nothing on this computer, which the machines share, listens there."""
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) != 0


async def environment_of(here: NodeTown, folder: Path) -> dict[str, str]:
    """The environment of a person with an API key, and with an `ssh` that uses the key of the machine."""
    made = await api_keys.create(here.town.db, _labels(), NewKey(ADA.ref), ADA, here.town.clock.now())
    (folder / "tools").mkdir()
    (folder / "tools/ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F none -i {here.key} -o BatchMode=yes "$@"\n')
    (folder / "tools/ssh").chmod(0o755)
    return dict(os.environ) | {
        "GPU_SHOPPER_URL": f"http://127.0.0.1:{here.town.environment['GPU_SHOPPER_PORT']}",
        "GPU_SHOPPER_API_KEY": made.data["token"],
        "XDG_STATE_HOME": str(folder),
        "PATH": f"{folder / 'tools'}:{os.environ['PATH']}",
    }


@asynccontextmanager
async def opened(name: str, short: str, local: int, env: dict[str, str]) -> AsyncIterator[str]:
    """The address that `gpu-shopper open` prints, while it holds the tunnel."""
    words = ("-c", PROGRAM, "open", short, name, "--local", str(local))
    process = await asyncio.create_subprocess_exec(sys.executable, *words, env=env, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(NODE_S):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()


async def page(address: str) -> str:
    """What a browser shows there, once the tunnel is up."""
    async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(NODE_S):
        while True:
            try:
                return (await http.get(address)).text
            except httpx.TransportError:
                await asyncio.sleep(LOOK_S)  # The tunnel tells nobody when it is up.


async def test_jupyter_is_started_behind_a_token_and_found_again(build: Build, tmp_path: Path) -> None:
    if not (is_free(8888) and is_free(6006)):
        pytest.skip("something on this computer uses port 8888 or 6006")
    async with build("vast", {"same_person": [["U0ALICE", ADA.ref]]}, clock_speed=SPEED) as here:
        place = here.town
        await place.ask()
        await place.approve()
        await place.ready()
        authorize(here.node().root, here.user, (here.public_key,))
        env, short = await environment_of(here, tmp_path), (await place.books()).sessions[-1].short_id
        local = free_port()
        async with opened("jupyter", short, local, env) as address:
            assert address.startswith(f"http://localhost:{local}/lab?token=")
            assert await page(address) == "a page of the sandbox"
            assert await page(f"http://localhost:{local}/lab") == "403: this needs the token"
        async with opened("jupyter", short, local, env) as again:
            assert again == address
            assert await page(again) == "a page of the sandbox"
        async with opened("tensorboard", short, local, env) as address:
            assert address == f"http://localhost:{local}/"
            assert await page(address) == "a page of the sandbox"
        await place.finish()
        await here.nothing_left()
