"""A job on a real machine: a file is uploaded, it trains, people read its speed, it saves, and its session ends."""

from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from bot.practice.reader import all_text
from ledger.core.writes import amend
from ledger.kernel.states import SessionState
from ledger.models import Session
from providers.sandbox.nodes.first_process import processes
from providers.sandbox.nodes.folders import MARK
from tests.scenarios.nodes.conftest import Build, NodeTown

pytestmark = pytest.mark.slow
#: A minute between two check-ins takes three seconds.
SAID = "Job: running."
SPEED = 20.0


async def trains(here: NodeTown, options: str) -> None:
    """A machine is ready, and a person starts a training run there, with a file of theirs."""
    await here.town.ask()
    await here.town.approve()
    await here.town.ready()
    await here.on_node(f"train-stub {options}")


async def reads_its_speed(here: NodeTown) -> None:
    """Alice reads in Slack how fast it trains."""
    place = here.town
    await here.row_where(lambda row: row.report.get("tokens_per_s"))
    session = (await place.books()).sessions[-1]
    await place.acked(place.ws.as_("alice").command(f"/gpu status {session.id}"))
    shown = await place.screens.told("alice", "is *running*")
    await place.acked(place.ws.as_("alice").click(shown, "Details"))
    await place.screens.told("alice", "4,200 tokens/s")


async def is_over(here: NodeTown) -> None:
    """Its session ended, and nothing is left of it."""
    await here.town.gone()
    await here.town.until(lambda books: books.sessions[-1].state is SessionState.TERMINATED)
    await here.town.comes_to_rest()
    await here.nothing_left()


@pytest.mark.parametrize("cloud", ["vast", "tensordock"])
async def test_a_run_is_uploaded_read_saved_before_its_end_and_gone(build: Build, tmp_path: Path, cloud: str) -> None:
    async with build(cloud, clock_speed=SPEED) as here:
        place = here.town
        (tmp_path / "config.json").write_text('{"lr": 0.001}')
        await trains(here, "--step-s 0.1 --steps 100000")
        await here.upload(tmp_path / "config.json", "config.json")
        await here.download("config.json", tmp_path / "back.json")
        assert (tmp_path / "back.json").read_text() == '{"lr": 0.001}'
        await reads_its_speed(here)
        session = (await place.books()).sessions[-1]
        async with place.db.write() as tx:
            await amend(tx, Session, session.id, deadline=place.clock.now() + timedelta(seconds=15))
        saved = await here.row_where(lambda row: row.report.get("checkpoint_at"))
        assert saved.report["checkpoint_step"] > 0
        await is_over(here)


async def test_a_finished_run_ends_its_session_after_a_message(build: Build) -> None:
    async with build("runpod", {"done_grace_s": 3}, clock_speed=SPEED) as here:
        await trains(here, "--step-s 0.05 --steps 200")
        await reads_its_speed(here)
        await here.town.screens.wrote("alice", "Its job is done")
        await is_over(here)


async def test_the_card_says_how_the_start_up_went(build: Build) -> None:
    async with build("vast", clock_speed=SPEED) as here:
        place = here.town
        await place.ask('run="sleep 300"')
        await place.approve()
        await place.ready()
        done = await place.ws.until(lambda: [one for one in place.ws.channel_messages() if SAID in all_text(one)])
        assert done
        row = await here.row_where(lambda row: row.report.get("steps"))
        assert [(one["name"], one["exit_code"]) for one in row.report["steps"]] == [
            ("environment", 0),
            ("packages", 0),
            ("run", 0),
        ]
        await place.finish()
        await here.nothing_left()


def agents_of(here: NodeTown) -> list[int]:
    """The processes of the newest machine's agent that report; its watchdog starts them again."""
    mark = f"{MARK}={here.node().root}".encode()
    found = []
    for pid in processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if mark in Path(f"/proc/{pid}/environ").read_bytes() and words[-2:-1] == [b"report"]:
                found.append(pid)
        except OSError:
            continue
    return found


async def test_a_job_survives_a_dropped_connection_and_its_agents_restart(build: Build) -> None:
    async with build("vast", clock_speed=SPEED) as here:
        place = here.town
        await place.ask('run="for i in $(seq 1 5000); do echo step $i; sleep 0.2; done"')
        await place.approve()
        await place.ready()

        def steps() -> list[str]:
            return here.read("opt/gpu-shopper/job/job.log").splitlines()

        await here.until(lambda: len(steps()) > 2)
        job = json.loads(here.read("opt/gpu-shopper/job/state.json"))
        # A login that goes away in the middle of a command, and then the agent itself.
        login = await here.follow("tail -f /opt/gpu-shopper/job/job.log")
        login.kill()
        await login.wait()
        (agent,) = agents_of(here)
        os.kill(agent, signal.SIGKILL)
        await here.until(lambda: agents_of(here) not in ([], [agent]))
        seq = (await here.row_where(lambda row: row.seq)).seq
        before = len(steps())
        await here.row_where(lambda row: row.seq > seq)
        await here.until(lambda: len(steps()) > before + 2)
        assert json.loads(here.read("opt/gpu-shopper/job/state.json"))["pid"] == job["pid"]
        assert steps() == [f"step {number}" for number in range(1, len(steps()) + 1)]
        await place.finish()
        await here.nothing_left()
