"""Random moves in which an agent is silent for minutes at one of the steps, or the target begins at step 0.

Judged from outside: by what runs at the clouds, what lies at the store, and what the trainers do.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from ledger.kernel.states import SessionState
from ledger.kernel.steps.relocation_step import MigrationStep
from providers.sandbox.agents import SandboxAgent
from tests.services.relocation.run import STEP_S, Run, running
from tests.support.world import World

_M = MigrationStep
STEPS = (_M.PROVISIONED, _M.READY, _M.VERIFIED, _M.PRESENT, _M.STARTED)
#: From the step on; the longest is longer than any step may take, and than a silence is borne.
MINUTES = (2, 5, 12, 25, 60, 180)
#: What a trainer leaves undone until its agent was silent for a while, so that the step lasts so long.
SLOW = {_M.READY: "save", _M.VERIFIED: "fetch", _M.PRESENT: "start", _M.STARTED: "train"}
FROM_ZERO, SLOWED = 0.3, 0.5
#: How many silences there are; none only where the target begins at step 0.
SILENCES = (0, 1, 1, 1, 2)
#: Of the first thirty, those that differ: each step, both machines, short and long, with a slow trainer, from step 0.
SEEDS = (1, 5, 8, 10, 12, 14, 16, 17, 19, 22, 26, 28)
#: Ticks after the move is over, in which what was ordered to end ends, and what was paused goes on.
AFTERWARDS = 30


@dataclass
class Silence:
    """Lets one machine's agent say nothing from a step of the move on, for a while."""

    run: Run
    step: MigrationStep
    is_target: bool
    ticks: int
    #: What is slow for as long as that.
    slow: str = ""
    agent: SandboxAgent | None = None

    def pass_tick(self) -> None:
        """Begin, go on or end, as it is time."""
        if self.slow and self.ticks > 0:
            self.run.refuses.add(self.slow)
        if self.agent is None:
            self._begin()
            return
        self.ticks -= 1
        if self.ticks <= 0:
            self.agent.silent = False
            self.run.refuses.discard(self.slow)

    def _begin(self) -> None:
        mine = [each for each in self.run.agents if (each is not self.run.first) is self.is_target]
        if self.step in self.run.seen and mine:
            self.agent = mine[0]
            self.agent.silent = True


class Judge:
    """Looks at every tick whether a machine of the run is there, and whether its copies are what they were."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.saved: dict[str, object] = {}
        self.wrong: list[str] = []

    def look(self) -> None:
        """Look once."""
        files = self.run.shelf.files
        for path, file in self.saved.items():
            if files.get(path) != file:
                self._note(f"the copy {path} was replaced or lost")
        self.saved |= {path: file for path, file in files.items() if path not in self.saved}
        if not self.run.w.alive():
            self._note("no machine is left")

    def _note(self, text: str) -> None:
        if text not in self.wrong:
            self.wrong.append(f"{text}, {[str(step) for step in self.run.seen]}")


async def saves(run: Run) -> None:
    """Let a target that trains save where it was told to."""
    row = await run.migration()
    target = next((each for each in run.agents if each is not run.first), None)
    if row is None or target is None or target.job != "running" or not any(target.utilisation) or target.silent:
        return
    if target.step > (target.saved_step or 0):
        place = (row.target_place or "s3://bucket/run").removeprefix("s3://bucket/")
        target.saved_step, target.saved_at = int(target.step), run.w.clock.now()
        run.shelf.put(f"{place}/step-{target.saved_step}/model.pt", 1_000, run.w.clock.now())


async def walk(w: World, seed: int) -> list[str]:
    """Play one move, and return what was wrong."""
    random = Random(f"{seed} moves")
    w.tune(replacements=random.choice((0, 1)))
    async with running(w, hours=9) as run:
        if random.random() < FROM_ZERO:
            run.refuses.add("resume")
        chosen = random.sample(STEPS, random.choice(SILENCES if run.refuses else SILENCES[1:]))
        silences = []
        for step in chosen:
            ticks = int(random.choice(MINUTES) * 60 / STEP_S)
            is_target = step is not _M.PROVISIONED and random.random() < 0.5
            slow = SLOW.get(step, "") if random.random() < SLOWED else ""
            silences.append(Silence(run, step, is_target, ticks, slow))
        judge = Judge(run)

        def on_tick() -> None:
            for silence in silences:
                silence.pass_tick()

        run.on_tick = on_tick
        await run.approved()
        for _ in range(int(5 * 3600 / STEP_S)):
            row = await run.migration()
            if row is not None and row.step in (_M.DONE, _M.FAILED):
                break
            await run.tick()
            await saves(run)
            judge.look()
        for _ in range(AFTERWARDS):
            await run.tick()
            await saves(run)
            judge.look()
        source, target = await run.sessions()
        told = [(str(silence.step), silence.is_target, silence.ticks, silence.slow) for silence in silences]
        states = [str(each.state) for each in (source, target) if each is not None]
        silent = [agent for agent in run.agents if agent.silent]
        trains = [agent for agent in run.agents if agent.job == "running" and any(agent.utilisation)]
        if row is None or row.step not in (_M.DONE, _M.FAILED):
            judge.wrong.append(f"the move stays at {row.step if row else None}")
        if SessionState.RUNNING not in (source.state, target.state if target is not None else None):
            judge.wrong.append(f"no session of the run is running: {states}")
        if not trains and not silent:
            judge.wrong.append("nobody trains any more")
        began = [agent.step for agent in trains if agent is not run.first]
        if row is not None and row.step is _M.DONE and "resume" in run.refuses and began:
            judge.wrong.append("the source was left for a target that began at step 0")
        return [f"{text}; silences left {told}, {sorted(run.refuses)}, {states}" for text in judge.wrong]


@pytest.mark.timeout(400)  # A silence of hours takes half a minute of one core on PostgreSQL.
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_move_with_silences_keeps_a_machine_its_copies_and_its_training(w: World, seed: int) -> None:
    assert await walk(w, seed) == []
