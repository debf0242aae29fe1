"""The built agent as processes: it ends its machine alone, with a wrong clock, and whatever happens to its parts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bot.agent.build import archive
from bot.agent.deadline import GRACE_S, TRIES_S
from bot.agent.own_folder import FOLDER
from bot.agent.settings import CLOUD_URL
from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState
from providers.sandbox.server import build_app
from tests.agent.service import Call, Service, checkin_answer, service
from tests.agent.signing import first_end, signed
from tests.services.nodes.test_deadlines import NODE_URL, Node
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import checked_world

pytestmark = pytest.mark.slow
#: An approved end so long ago that the machine begins to end itself in this many seconds.
SOON_S = 3
LEFT_S = int(TRIES_S - GRACE_S) + SOON_S
DEAD = "http://127.0.0.1:9"
#: Python reads it at its start: the calendar clock of the agent's processes is wrong, and jumps at each look.
WRONG_CLOCK = """
import time
steps = iter([0.0, 4e9, 1.0, 2e9] * 1_000_000)
time.time = lambda: next(steps)
time.time_ns = lambda: int(next(steps) * 1e9)
"""


@dataclass
class Agent:
    """The agent's watchdog, and what it wrote."""

    process: subprocess.Popen[str]
    started_s: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    wrote: threading.Condition = field(default_factory=threading.Condition)

    def collect(self) -> None:
        """Read its log until all of its processes ended."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self.wrote:
                self.lines.append(line)
                self.wrote.notify_all()

    def logs(self, text: str) -> None:
        """Wait until it wrote this."""
        with self.wrote:
            assert self.wrote.wait_for(lambda: any(text in line for line in self.lines), 30), self.lines

    def children(self, of: int | None = None) -> list[int]:
        """The processes that it started."""
        pid = of or self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


Start = Callable[[Mapping[str, str]], Agent]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start an agent with these variables, and end its processes afterwards."""
    built = tmp_path / "agent.pyz"
    (tmp_path / "libraries").mkdir()
    built.write_bytes(archive(tmp_path / "libraries"))
    with _agents(built, tmp_path) as begin:
        yield begin


@contextmanager
def _agents(built: Path, folder: Path) -> Iterator[Start]:
    begun: list[tuple[Agent, threading.Thread]] = []

    def begin(environment: Mapping[str, str]) -> Agent:
        variables = {"PATH": os.environ["PATH"], FOLDER: str(folder / "run"), **environment}
        process = subprocess.Popen(
            [sys.executable, str(built)], env=variables, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        agent = Agent(process)
        reader = threading.Thread(target=agent.collect)
        reader.start()
        begun.append((agent, reader))
        return agent

    yield begin
    for agent, reader in begun:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(agent.process.pid, signal.SIGKILL)
        agent.process.wait()
        reader.join()
        assert agent.process.stderr is not None
        agent.process.stderr.close()


@pytest.fixture
def here() -> Iterator[Service]:
    with service() as one:
        yield one


def ends(calls: list[Call]) -> list[Call]:
    return [one for one in calls if one.method == "DELETE"]


def checkins(calls: list[Call]) -> list[Call]:
    return [one for one in calls if one.method == "POST"]


def soon(call: Call) -> tuple[int, object]:
    """An answer after which the machine begins to end itself soon."""
    return 200, checkin_answer(call.body.get("seq", 0), left_s=LEFT_S)


def vast(here: Service, **more: str) -> dict[str, str]:
    """The variables of a container at Vast.ai whose cloud and service are both `here`."""
    return {**here.environment(), "CONTAINER_ID": "77", "CONTAINER_API_KEY": "own", CLOUD_URL: here.url, **more}


def test_without_its_controller_the_machine_ends_itself_and_not_before(start: Start, here: Service) -> None:
    environment = vast(here, **first_end(signed(n=0, left_s=LEFT_S))) | {
        "GPU_SHOPPER_CHECKIN_URL": f"{DEAD}/agent/v1/checkin"
    }
    agent = start(environment)
    (call,) = ends(here.wait(lambda calls: bool(ends(calls))))
    assert (call.path, call.token) == ("/api/v0/instances/77/", "own")
    assert SOON_S <= time.monotonic() - agent.started_s < SOON_S + 10
    agent.logs("can't be reached")
    agent.logs("The cloud accepted that this machine ends.")


def test_a_wrong_calendar_clock_changes_nothing(start: Start, here: Service, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WRONG_CLOCK)
    here.answer = soon
    agent = start(vast(here, PYTHONPATH=str(tmp_path)))
    here.wait(lambda calls: bool(checkins(calls)))
    accepted_s = time.monotonic()
    here.wait(lambda calls: bool(ends(calls)))
    assert accepted_s - agent.started_s + SOON_S <= time.monotonic() - agent.started_s < SOON_S + 15


def test_a_cut_network_is_named_and_tried_again(start: Start, here: Service) -> None:
    here.answer = soon
    agent = start(vast(here) | {CLOUD_URL: DEAD})
    agent.logs("This machine can't end itself and tries again")
    agent.logs("did not get through")
    assert agent.process.poll() is None


def test_where_there_is_no_facility_it_says_so_and_runs_on(start: Start, here: Service) -> None:
    here.answer = soon
    agent = start(here.environment())
    agent.logs("This cloud has no way for a machine to end itself")
    agent.logs("so it ends itself.")
    assert agent.process.poll() is None
    assert ends(here.calls) == []


def test_a_killed_reporter_is_started_again_with_its_nonce_and_the_end_stays(start: Start, here: Service) -> None:
    here.answer = lambda call: (200, checkin_answer(call.body.get("seq", 0), left_s=LEFT_S + 2))
    agent = start(vast(here))
    here.wait(lambda calls: bool(checkins(calls)))
    (reporter,) = agent.children()
    os.kill(reporter, signal.SIGKILL)
    first, *_, last = checkins(here.wait(lambda calls: sum("nonce" in one.body for one in checkins(calls)) > 1))
    assert first.body["nonce"] == last.body["nonce"]
    assert last.body["seq"] > first.body["seq"]
    here.wait(lambda calls: bool(ends(calls)))
    agent.logs("The reporter ended (-9)")


def test_a_killed_watchdog_comes_back_out_of_its_reporter(start: Start, here: Service) -> None:
    began_s = time.monotonic()

    def answer(call: Call) -> tuple[int, object]:
        left_s = LEFT_S + 5 - int(time.monotonic() - began_s)
        return 200, checkin_answer(call.body.get("seq", 0), left_s=left_s, next_in_s=1)

    here.answer = answer
    agent = start(vast(here))
    here.wait(lambda calls: bool(checkins(calls)))
    (reporter,) = agent.children()
    agent.process.kill()
    here.wait(lambda calls: bool(ends(calls)))
    assert agent.children(reporter)
    assert len({one.body["nonce"] for one in checkins(here.calls) if "nonce" in one.body}) == 1


def test_a_second_agent_of_one_machine_leaves_at_once(start: Start, here: Service) -> None:
    start(vast(here))
    here.wait(lambda calls: bool(checkins(calls)))
    second = start(vast(here))
    assert second.process.wait(20) == 75
    second.logs("runs already")


def test_a_machine_that_reports_to_nobody_says_what_is_missing(start: Start) -> None:
    agent = start({})
    assert agent.process.wait(20) == 78
    agent.logs("GPU_SHOPPER_CHECKIN_URL")


@pytest.mark.parametrize("cloud", ["vast", "runpod"])
async def test_from_the_create_to_its_own_end_at_the_sandbox(
    sqlite_db: Database, clock: SteppedClock, start: Start, cloud: str
) -> None:
    """The service is back only to answer check-ins: the machine ends itself, and its session is closed and booked."""
    async with checked_world(sqlite_db, clock) as w:
        w.ctx = replace(w.ctx, node_url=NODE_URL)
        await w.running(candidates=(cloud,))
        node = Node(w, cloud)
        w.clock.advance(2 * 3600 + GRACE_S - TRIES_S - 20)
        assert w.alive()
        api = build_api(Dependencies(w.ctx, ApiSettings("C0GPU")), {})
        async with serving(api) as url, serving(build_app(w.clouds, tick_s=None)) as sandbox:
            own = {CLOUD_URL: f"{sandbox}/{cloud}", "GPU_SHOPPER_CHECKIN_URL": f"{url}/agent/v1/checkin"}
            agent = start({**node.settings.environment, **own})
            await asyncio.to_thread(agent.logs, "The cloud accepted that this machine ends.")
            assert w.alive() == []
        await w.run(300, 30)
        books = await w.books()
        assert [row.state for row in books.instances] == [InstanceState.GONE]
        assert len(w.engine.creates) == 1
        assert books.sessions[-1].ended_at is not None
