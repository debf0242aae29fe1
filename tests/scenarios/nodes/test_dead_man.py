"""The bot is killed: machines end themselves after their paid end where their cloud lets them, and never before it.

The machines' boot clocks run 60 times faster, so ten of their minutes take ten seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from ledger.core.writes import amend
from ledger.kernel.states import SessionState
from ledger.models import Session
from tests.scenarios.nodes.cable import Cable, cable
from tests.scenarios.nodes.conftest import Build, NodeTown

pytestmark = pytest.mark.slow
SPEED = 60.0
#: Seconds of the machine from the kill to its paid end, and how long after that it must be gone.
PAID_S, GRACE_S = 240.0, 600.0
#: Seconds of the machine for which an outage outlives the grace.
OUTAGE_S = 120.0
#: The machine's calendar when it boots, and in the middle of its life: years behind, then years ahead.
BEHIND_S, AHEAD_S = -3e8, 3e8


@asynccontextmanager
async def abandoned(build: Build, cloud: str, **options: Any) -> AsyncIterator[tuple[NodeTown, float, Cable]]:
    """A machine that trains and whose bot was killed, when it last received its end, and its network to its cloud."""
    async with cable() as network, build(cloud, clock_speed=SPEED, network=network.url, **options) as here:
        place = here.town
        await place.ask()
        await place.approve()
        await place.ready()
        network.target = here.nodes.address
        await here.on_node("train-stub --step-s 0.1 --steps 100000")
        session = (await place.books()).sessions[-1]
        end = place.clock.now() + timedelta(seconds=PAID_S)
        async with place.db.write() as tx:
            await amend(tx, Session, session.id, deadline=end)

        def received() -> bool:
            kept = json.loads(here.read("opt/gpu-shopper/agent/state.json") or "{}")
            return bool(json.loads(kept.get("message", "{}")).get("deadline_s") == int(end.timestamp()))

        await here.until(received)
        await place.kill()
        yield here, time.monotonic(), network


def step(here: NodeTown) -> int:
    """How far the training run is."""
    return int(json.loads(here.read("opt/gpu-shopper/job/report.json") or '{"step": 0}')["step"])


async def runs_on_until_its_end(here: NodeTown, since_s: float) -> None:
    """The job runs until the paid end; then it is asked to save and to stop, and does."""
    first = step(here)
    await here.until(lambda: step(here) > first)
    assert here.town.alive()
    await here.until(lambda: "stopped as asked" in here.read(f"{home(here)}/out"))
    assert (time.monotonic() - since_s) * SPEED > PAID_S - SPEED  # The last message may be a second old.
    assert json.loads(here.read("opt/gpu-shopper/job/report.json"))["checkpoint"]["step"] > first


def home(here: NodeTown) -> str:
    """The folder of who logs in."""
    return "root" if here.user == "root" else f"home/{here.user}"


async def is_booked_once(here: NodeTown) -> None:
    """A new bot finds the machine gone, or ends it, and closes its session."""
    place = here.town
    await place.restart(down_s=PAID_S + 60)
    await place.until(lambda books: books.sessions[-1].state is SessionState.TERMINATED)
    # The cloud's clock did not run as fast as the machine's, so its bill says nothing here.
    await place.comes_to_rest(but="the ledger agrees with the bill")
    await here.nothing_left()


@pytest.mark.parametrize("cloud", ["vast", "runpod"])
async def test_a_machine_without_its_bot_ends_itself_after_its_paid_end(build: Build, cloud: str) -> None:
    async with abandoned(build, cloud) as (here, since_s, _):
        await runs_on_until_its_end(here, since_s)
        await here.until(lambda: not here.town.alive())
        gone_after_s = (time.monotonic() - since_s) * SPEED - PAID_S
        print(f"{cloud}: gone {gone_after_s / 60:.1f} of its minutes after its paid end")
        assert 0 < gone_after_s < GRACE_S
        await is_booked_once(here)


async def test_a_wrong_and_stepped_calendar_changes_nothing(build: Build) -> None:
    async with abandoned(build, "vast", calendar_off_s=BEHIND_S) as (here, since_s, _):
        here.nodes.calendar_off_s = AHEAD_S
        here.nodes.set_clock(here.node().root)
        await runs_on_until_its_end(here, since_s)
        await here.until(lambda: not here.town.alive())
        assert 0 < (time.monotonic() - since_s) * SPEED - PAID_S < GRACE_S
        await is_booked_once(here)


@pytest.mark.parametrize("cloud", ["vast", "runpod"])
async def test_an_outage_of_the_whole_time_delays_its_end_until_the_network_is_back(build: Build, cloud: str) -> None:
    """A machine that is cut off from everything can't reach its cloud, so no grace holds. It says so, and keeps trying.

    Cut off from the bot alone, it is as one whose bot was killed: it ends within the grace.
    """
    async with abandoned(build, cloud) as (here, since_s, network):
        await network.cut()
        await runs_on_until_its_end(here, since_s)
        await here.until(lambda: (time.monotonic() - since_s) * SPEED > PAID_S + GRACE_S + OUTAGE_S)
        assert here.town.alive()
        log = here.read("opt/gpu-shopper/agent.log")
        assert "This machine can't end itself and tries again" in log
        assert "did not get through" in log
        back_s = time.monotonic()
        await network.mend()
        await here.until(lambda: not here.town.alive())
        gone_after_s = (time.monotonic() - back_s) * SPEED
        print(f"{cloud}: gone {gone_after_s:.0f} of its seconds after the network was back")
        assert gone_after_s < GRACE_S
        await is_booked_once(here)


@pytest.mark.parametrize("cloud", ["lambda", "tensordock"])
async def test_where_a_machine_cannot_end_itself_it_says_so_and_the_bot_does(build: Build, cloud: str) -> None:
    async with abandoned(build, cloud) as (here, since_s, _):
        log = "opt/gpu-shopper/agent.log"
        assert "This cloud has no way for a machine to end itself." in here.read(log)
        await runs_on_until_its_end(here, since_s)
        await here.until(lambda: "The approved end has passed and this machine still runs" in here.read(log))
        assert here.town.alive()
        await is_booked_once(here)
