"""Several machines share one queue under one approval: each result comes once, whichever of them fails."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.services.nodes.job_results import job_status_of
from bot.services.sessions import idle_termination
from bot.services.sessions.queue_overview import queue_results
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.job_state import JobState
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import CommandResult, Instance, Session
from ledger.queries.jobs.command_results import results_of
from providers.sandbox.agents import SandboxAgent
from tests.services.relocation.mortal import Killed, Processes
from tests.support.agents import listening
from tests.support.world import World

MACHINES, COMMANDS, FAILS = 3, 12, 7
QUEUE = tuple(f"python train.py --seed {number}" for number in range(1, COMMANDS + 1))
STEP_S = 30.0


@dataclass
class Ablation:
    """A queue on several machines, whose agents run a command a minute on each GPU."""

    w: World
    request_id: str
    #: What each machine's agent has noted, by the machine.
    journals: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    begun: dict[tuple[str, int], int] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    #: Machines whose start-up failed before their queue.
    broken: set[str] = field(default_factory=set)
    ticks: int = 0
    on_tick: Callable[[], None] | None = None
    dies: Callable[[], tuple[int, bool] | None] | None = None
    processes: Processes | None = None

    def agents(self) -> dict[str, SandboxAgent]:
        """The agents of the machines that run, by their machines."""
        return dict(self.w.engine.nodes.running)

    def _works(self, key: str, agent: SandboxAgent) -> None:
        if key in self.broken:
            agent.machine = {"steps": [{"name": one, "state": "failed", "exit_code": 128} for one in ("repo", "run")]}
            agent.more = {}
            return
        journal = self.journals.setdefault(key, [])
        over = {one["number"] for one in journal}
        if key not in self.stuck:
            for number in sorted(agent.commands.keys() - over)[:1]:
                began = self.begun.setdefault((key, number), self.ticks)
                if self.ticks - began >= 2:
                    journal.append(self._result(len(journal) + 1, number))
        counts = {"waiting": 0, "running": 1, "done": len(journal), "failed": 0}
        agent.machine = {"steps": [{"name": "run", "state": "done"}]}
        agent.more = {"queue": counts, "results": journal[-16:]}

    def _result(self, index: int, number: int) -> dict[str, Any]:
        ended_at = self.w.clock.now()
        times = {"started_at": (ended_at - timedelta(seconds=60)).isoformat(), "ended_at": ended_at.isoformat()}
        code = 3 if number == FAILS else 0
        return {"index": index, "number": number, "gpu": 0, "exit_code": code, "attempts": 1, "log_tail": "", **times}

    async def tick(self) -> None:
        """Let time pass: the agents work and report, and the service does what is due."""
        w = self.w
        self.ticks += 1
        w.clock.advance(STEP_S)
        if self.on_tick is not None:
            self.on_tick()
        for cloud in {key.partition("/")[0] for key in w.engine.nodes.running}:
            await w.clouds[cloud].tick()
        for key, agent in self.agents().items():
            self._works(key, agent)
        death = self.dies() if self.dies is not None else None
        try:
            if death is not None and self.processes is not None:
                self.processes.db.dies_in, self.processes.db.after_commit = death
            await idle_termination.idle_terminations_due(self.w.ctx)
            await self.w.settle(3)
        except Killed:
            assert self.processes is not None
            self.processes.kill()
        finally:
            if self.processes is not None:
                self.processes.db.dies_in = None

    async def over(self) -> Session:
        """Wait until the session ended."""
        for _ in range(400):
            session = await self.session()
            if session.state is SessionState.TERMINATED:
                return session
            await self.tick()
        raise AssertionError(f"it is {session.state} with {sorted(one.number for one in await self.results())}")

    async def session(self) -> Session:
        found = (await self.w.view(self.request_id)).session
        assert found is not None
        return found

    async def machines(self) -> list[Instance]:
        """The machines in the order of their ranks."""
        return sorted((await self.w.view(self.request_id)).instances, key=lambda row: row.node_rank or 0)

    async def results(self) -> list[CommandResult]:
        async with self.w.ctx.db.read() as tx:
            return await results_of(tx, (await self.session()).id)

    async def line(self) -> str:
        """What people read of the job."""
        job = job_status_of(await self.w.session((await self.session()).id))
        assert job is not None
        return job.line


async def ablation(w: World, cloud: str = "lambda", hours: int = 3) -> Ablation:
    """An approved request for machines that share a queue."""
    request_id = await w.approved(candidates=(cloud,), nodes=MACHINES, queue=QUEUE, hours=Decimal(hours))
    return Ablation(w, request_id)


async def each_result_is_there_once(here: Ablation) -> None:
    """All results are there, once each; the job has one result; the machines' bill is inside the one approval."""
    rows = await here.results()
    assert [row.number for row in rows] == list(range(1, COMMANDS + 1))
    assert [row.number for row in rows if row.exit_code] == [FAILS]
    session = await here.session()
    assert (session.job_state, session.job_exit_code) == (JobState.FAILED, 1)
    assert await here.line() == "failed (queue 11/12 done, 1 failed)"
    books = await here.w.books()
    assert len([one for one in books.events if one.kind == EventKind.JOB_ENDED]) == 1
    (approval,) = books.approvals
    assert approval.total_cap_usd is not None
    assert (await here.w.session(session.id)).accrued_usd <= approval.total_cap_usd
    found = await queue_results(here.w.ctx, session.id, here.w.clock.now())
    assert sum((one.cost_usd for one in found.commands), found.idle_usd) == found.total_usd
    assert all(one.cost_usd > 0 for one in found.commands)
    assert await here.w.violations() == []
    assert here.w.alive() == []


@pytest.mark.slow
async def test_the_commands_are_spread_and_each_machine_ends_when_none_is_left(w: World) -> None:
    async with listening(w):
        here = await ablation(w)
        await w.settle()
        for _ in range(400):
            await here.tick()
            if len(await here.results()) >= 8:
                break
        assert (await here.line()).startswith("running (queue 7/12 done, 1 failed") or "/12 done" in await here.line()
        assert (await here.session()).state is SessionState.RUNNING
        await here.over()
        await each_result_is_there_once(here)
        by_machine = Counter(row.instance_id for row in await here.results())
        assert sorted(by_machine.values()) == [4, 4, 4]
        assert {row.outcome_code for row in await here.machines()} <= {EndReason.COMPLETED, EndReason.WORK_FAILED}


@pytest.mark.slow
async def test_a_lost_machine_gives_its_commands_back(w: World) -> None:
    async with listening(w):
        here = await ablation(w)
        await w.settle()
        while len(await here.results()) < 4:
            await here.tick()
        lost = (await here.machines())[1]
        w.clouds["lambda"].disturb(str(lost.ref), "vanish")
        await here.over()
        await each_result_is_there_once(here)
        assert (await here.machines())[1].outcome_code == EndReason.LOST
        assert len([row for row in (await w.books()).claims if row.round == 1]) >= 1
        assert "session.interrupted" in w.board.kinds((await here.session()).id)


@pytest.mark.slow
async def test_a_machine_that_is_refused_just_does_not_come(w: World) -> None:
    async with listening(w):
        here = await ablation(w)
        w.arm("create_stale_offer", "lambda", 1)
        await here.over()
        await each_result_is_there_once(here)
        assert Counter(row.state for row in await here.machines()) == {
            InstanceState.GONE: MACHINES - 1,
            InstanceState.REJECTED: 1,
        }


@pytest.mark.slow
async def test_a_machine_that_never_boots_holds_nothing_up(w: World) -> None:
    async with listening(w):
        here = await ablation(w)
        w.arm("never_boots", "lambda", 1)
        await here.over()
        await each_result_is_there_once(here)
        assert len(Counter(row.instance_id for row in await here.results())) == MACHINES - 1


@pytest.mark.slow
async def test_a_silent_machine_is_ended_and_its_commands_run_elsewhere(w: World) -> None:
    async with listening(w):
        here = await ablation(w)
        await w.settle()
        while len(await here.results()) < 3:
            await here.tick()
        key = min(here.agents())
        here.agents()[key].silent = True
        await here.over()
        await each_result_is_there_once(here)
        assert EndReason.NO_HEARTBEAT in {row.outcome_code for row in await here.machines()}


async def test_nobody_comes(w: World) -> None:
    async with listening(w):
        here = await ablation(w)
        w.arm("create_stale_offer", "lambda", None)
        await here.over()
        session = await here.session()
        assert (session.end_code, session.job_state) == (EndReason.SET_BROKEN, JobState.INTERRUPTED)
        assert session.end_reason.startswith("None of the 3 machines that share its queue is left")
        assert await w.violations() == []


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.parametrize("seed", range(3))
async def test_the_service_is_killed_while_machines_are_lost(w: World, seed: int) -> None:
    chance = random.Random(seed)
    async with listening(w):
        here = await ablation(w, hours=6)
        before, losses = w.ctx.db, ["vanish"]
        here.processes = Processes(w)
        here.processes.start()

        def happens() -> None:
            refs = sorted(key for key in w.engine.nodes.running)
            if losses and here.ticks > 12 and len(refs) == MACHINES:
                w.clouds["lambda"].disturb(chance.choice(refs).partition("/")[2], losses.pop())

        here.on_tick = happens
        here.dies = lambda: (chance.randint(1, 6), chance.random() < 0.5) if chance.random() < 0.4 else None
        await here.over()
        here.dies = None
        assert here.processes.kills >= 3
        if (await here.session()).end_code != EndReason.SET_BROKEN:
            await each_result_is_there_once(here)
        await here.processes.close(before)
    await w.heal()
    assert await w.violations(healed=True) == []


async def test_a_cloud_whose_offers_are_single_machines_is_refused_before_anything_is_stored(w: World) -> None:
    async with listening(w):
        reply = await w.ask(candidates=("vast",), nodes=2, queue=QUEUE)
        assert (reply.ok, reply.code) == (False, "bad_nodes")
        assert reply.sentence == "vast can't rent 2 machines of one offer: each of its offers is one machine."
        assert not (await w.books()).requests


@pytest.mark.slow
async def test_a_machine_whose_start_up_fails_is_ended_and_the_others_run_its_share(w: World) -> None:
    async with listening(w):
        here = await ablation(w)
        await w.settle()
        await here.tick()
        broken = (await here.machines())[1]
        here.broken.add(next(key for key in here.agents() if key.endswith(str(broken.ref))))
        await here.over()
        await each_result_is_there_once(here)
        assert (await here.machines())[1].outcome_code == EndReason.WORK_FAILED
        assert "start-up failed" in (await here.machines())[1].outcome


async def test_a_queue_none_of_whose_machines_can_start_it_ends_at_once(w: World) -> None:
    async with listening(w):
        here = await ablation(w)
        await w.settle()
        await here.tick()
        here.broken |= here.agents().keys()
        session = await here.over()
        assert session.deadline is not None
        assert session.deadline - w.clock.now() > timedelta(hours=2)
