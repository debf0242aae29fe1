"""`recover` and `adopt` on the server and from elsewhere, and a process that is killed in the middle of an adoption."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.clock import SystemClock
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from bot.services.sessions import idle_termination
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.ids import new_id
from ledger.kernel.states import OrphanState
from providers.sandbox.server import build_app
from tests.cli.test_commands import elsewhere
from tests.cli.test_doors import Terminal, terminal
from tests.services.runtime.test_recovery_mode import rent
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import ALICE

__all__ = ["elsewhere", "terminal"]

REPOSITORY = Path(__file__).parents[2]
ROOT = Actor(ActorKind.OPERATOR, "root")
#: The program as it is installed, but for one thing: at the commit that makes a grant it is killed, before or after it.
DYING = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
after = sys.argv.pop(1) == "after"
made = False
def die(): os.kill(os.getpid(), signal.SIGKILL)
@event.listens_for(Engine, "commit")
def commit(connection):
    global made
    if connection.exec_driver_sql("SELECT count(*) FROM grants").scalar():
        made = True
        after or die()
@event.listens_for(Engine, "begin")
def begin(connection):
    made and die()
from bot.cli import main
main()
"""


@pytest.fixture
def clock() -> SteppedClock:
    """The time of the other processes, which have no other."""
    return SteppedClock(SystemClock().now())


@pytest.fixture
async def server(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Terminal]:
    """A terminal whose in-process half reaches the clouds, too, and has the deployment's label key."""
    w = terminal.w
    monkeypatch.setenv("GPU_SHOPPER_LABEL_KEY", w.ctx.labels.key.hex())
    monkeypatch.setenv("GPU_SHOPPER_DEPLOYMENT", w.ctx.labels.deployment)
    async with serving(build_app(w.clouds, tick_s=None)) as url:
        for name, cloud in w.clouds.items():
            for variable, value in cloud.environment(f"{url}/{name}").items():
                monkeypatch.setenv(variable, value)
        yield terminal


async def killed(when: str, *arguments: str) -> int:
    """Run a command that is killed; its exit code."""
    program = [sys.executable, "-c", DYING, when, *arguments]
    child = await asyncio.create_subprocess_exec(*program, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    return await asyncio.wait_for(child.wait(), 60)


@pytest.mark.slow
async def test_what_is_unknown_is_found_here_and_elsewhere_and_adopted_once_however_often_a_process_dies(
    server: Terminal,
) -> None:
    t, w = server, server.w
    ref = rent(w, f"gpu-1x4090-{w.ctx.labels.mint(new_id('req', w.clock.now()), 1)}")
    root = NewKey(ROOT.ref, scopes=("admin",))
    made = await api_keys.create(w.ctx.db, w.ctx.labels, root, ROOT, w.clock.now())
    t.far(str(made.data["token"]))
    far = await t.run("recover")
    t.near()
    assert await t.run("recover") == far
    code, out, err = far
    assert (code, ref in out, "Recovery mode is on: 1 instance has our label" in err) == (0, True, True)
    orphan = next(word for word in out.split() if word.startswith("str_"))
    keep = ("adopt", orphan, "--hours", "2", "--owner", ALICE.id, "--reason", "it trains")

    async def books() -> tuple[list[OrphanState], int, int, int]:
        read = await w.books()
        return [one.state for one in read.orphans], len(read.grants), len(read.sessions), len(read.instances)

    assert await killed("before", *keep) == -signal.SIGKILL
    assert await books() == ([OrphanState.QUARANTINED], 0, 0, 0)
    assert await killed("after", *keep) == -signal.SIGKILL
    assert await books() == ([OrphanState.GONE], 1, 1, 1)
    again = await t.run(*keep)
    assert (again[0], "can't be adopted" in again[2]) == (1, True)
    assert await books() == ([OrphanState.GONE], 1, 1, 1)
    code, out, err = await t.run("recover")
    assert (code, "No orphan waits for you." in out, "Recovery" in err) == (0, True, False)
    assert ref in await t.good("instances")
    assert len(w.alive()) == 1
    for cloud in w.clouds.values():  # Nobody is set up: that nothing was found is no all-clear.
        for variable in cloud.environment("http://127.0.0.1:9"):
            t.monkeypatch.delenv(variable)
    code, _, err = await t.run("recover")
    assert (code, "nothing was looked at" in err) == (69, True)


async def test_who_asks_while_no_service_runs_is_told_that_nobody_acts(server: Terminal) -> None:
    t, ask = server, ("provision", "--gpu", "4090", "--hours", "2", "--reason", "x")
    t.near()
    alone = await t.good(*ask)
    (request,) = (await t.w.books()).requests
    assert "nothing happens until `gpu-shopper serve` runs" in alone
    assert f"gpu-shopper request {request.id[-6:]}" in alone
    await idle_termination.idle_terminations_due(t.w.ctx)  # What a service does every few seconds.
    assert "serve" not in await t.good(*ask)
