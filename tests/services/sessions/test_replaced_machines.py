"""A machine that is replaced and kept trains no more, and its replacement never writes over its checkpoints."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.relocation.resume import beside_name
from bot.services.checkpoints import resume
from bot.services.nodes.startup import plans
from bot.services.runtime.commands import AnswerGrace
from bot.services.sessions import grace_answers
from ledger.kernel.ids import short_id
from ledger.kernel.steps.grace import GraceChoice
from tests.services.relocation.run import PLACE, SOURCE, Run, running
from tests.support.world import ALICE, World, facts


async def still_reports(run: Run, minutes: int) -> None:
    """Its cloud has lost contact, and its agent reports all the while."""
    w = run.w
    for _ in range(minutes * 2):
        w.clock.advance(30)
        for cloud in {key.partition("/")[0] for key in w.engine.nodes.running}:
            await w.clouds[cloud].tick()
        await w.engine.nodes._check_in(run.first, w.clock.now())
        paused = "pause" in run.first.asks
        run.first.job, run.first.utilisation = ("paused", [0.0]) if paused else ("running", [93.0])
        await resume.resumes_due(w.ctx)
        await w.settle(3)


@pytest.mark.slow
async def test_no_machine_is_replaced_by_itself_while_its_job_reports_progress(w: World) -> None:
    w.tune(replacements=1, price_tolerance=Decimal(9))
    async with running(w, hours=6) as run:
        w.clouds["vast"].disturb(str((await run.row(SOURCE)).ref), "offline")
        await still_reports(run, 20)
        assert [(row.n, row.state) for row in (await w.books()).instances] == [(1, "live")]
        assert run.first.job == "running"
        run.first.silent = True
        await still_reports(run, 10)
        assert [row.n for row in (await w.books()).instances] == [1, 2]


async def test_a_replaced_machine_pauses_and_its_replacement_saves_at_a_place_of_its_own(w: World) -> None:
    w.tune(replacements=1, price_tolerance=Decimal(9))
    async with running(w, hours=6) as run:
        w.clouds["vast"].disturb(str((await run.row(SOURCE)).ref), "offline")
        await still_reports(run, 2)
        choice = AnswerGrace(run.request_id, facts(ALICE), GraceChoice.REPLACE, None)
        assert (await grace_answers.answer(w.ctx, choice)).ok
        await still_reports(run, 6)
        assert (run.first.job, run.first.asks) == ("paused", ("pause",))
        first, second = (await w.books()).instances
        async with w.ctx.db.read() as tx:
            found = await plans(tx, [first.id, second.id])
        assert found[first.id]["environment"]["CHECKPOINT"] == PLACE
        own = f"{PLACE}/moved-{beside_name(short_id(run.request_id), 2)}"
        assert found[second.id]["environment"]["CHECKPOINT"] == own
        # What it saves there counts as a checkpoint of the run, unless it began below its save.
        run.shelf.put(f"{own.removeprefix('s3://bucket/')}/step-9000/model.pt", 1_000, w.clock.now())
        stored = await resume.last_verified_checkpoint(w.ctx, PLACE, w.clock.now())
        assert stored.address == f"{own}/step-9000"
        agent = next(agent for agent in run.agents if agent is not run.first)
        agent.machine, agent.step = {"steps": [{"name": "run", "state": "done"}]}, 0.0
        await w.engine.nodes._check_in(agent, w.clock.now())
        stored = await resume.last_verified_checkpoint(w.ctx, PLACE, w.clock.now())
        assert not stored.address.startswith(own), stored
