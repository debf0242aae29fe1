"""A slice of the kill matrix: one walk a database, with a kill in each phase; and the hook itself."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.scenarios.kills.__main__ import Rota
from tests.scenarios.kills.commit_cuts import Way, commit_cuts
from tests.scenarios.kills.cuts import Aim, Cut
from tests.scenarios.kills.failpoints import FAILPOINTS, ROOT, Arm, Failpoint, Phase, install
from tests.scenarios.kills.walk import Kill, Walk
from tests.scenarios.kills.way_back import TURNS, Back, WayBack
from tests.scenarios.processes.processes import nursery
from tests.support.databases import PostgresTemplate
from tests.support.stack import town

#: A table that the COMMIT writes which is cut in each phase.
WRITTEN = {Phase.ASK: "inbox", Phase.APPROVE: "approvals", Phase.EXTEND: "grants", Phase.END: "ledger_entries"}
HERE = "tests/scenarios/kills/test_kills.py"


@pytest.mark.slow
async def test_a_kill_in_each_phase_loses_nothing(db_url: str, tmp_path: Path) -> None:
    plan = {one.phase: Kill(one, 1) for one in reversed(FAILPOINTS)}
    with nursery() as parent:
        async with town(db_url, tmp_path, parent, "vast") as place:
            walk = Walk(place, plan, Arm(tmp_path / "dies-at"), tmp_path / "dies-at")
            await walk.play()
    assert {one.point.phase for one in walk.killed} >= {Phase.ASK, Phase.APPROVE, Phase.EXTEND, Phase.END}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("turn", [turn for turn in TURNS if turn is not None and turn[1] is not Phase.EXTEND], ids=str)
async def test_operators_go_back_after_a_kill(db_url: str, tmp_path: Path, turn: tuple[Back, Phase]) -> None:
    plan = {one.phase: Kill(one, 1) for one in reversed(FAILPOINTS) if one.phase in (turn[1], Phase.RECOVER)}
    with nursery() as parent:
        async with town(db_url, tmp_path, parent, "vast") as place:
            back = WayBack(place, tmp_path, *turn)
            await Walk(place, plan, Arm(tmp_path / "dies-at"), tmp_path / "dies-at", back=back).play()
    assert back.is_done


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", Way)
async def test_a_commit_without_its_connection_in_each_phase_loses_nothing(
    pg_template: PostgresTemplate, tmp_path: Path, way: Way
) -> None:
    aim = Aim({phase: [Cut(frozenset({wrote}), way)] for phase, wrote in WRITTEN.items()})
    with nursery() as parent:
        async with pg_template.clone() as url, commit_cuts(url, tmp_path / "pg") as (cut_url, cuts):
            aim.at(cuts)
            async with town(url, tmp_path, parent, "runpod") as place:
                place.environment = {**place.environment, "GPU_SHOPPER_DATABASE_URL": cut_url}
                await Walk(place, {}, Arm(tmp_path / "dies-at"), tmp_path / "dies-at", aim).play()
    assert {phase for phase, _ in aim.made} == set(WRITTEN)


@pytest.mark.parametrize("point", FAILPOINTS, ids=str)
def test_each_failpoint_names_a_function(point: Failpoint) -> None:
    assert f"async def {point.function}(" in (ROOT / point.path).read_text()


async def step(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def test_a_process_dies_at_the_await_that_was_named(tmp_path: Path) -> None:
    arm = Arm(tmp_path / "dies-at")
    for steps, code in ((3, 0), (5, -signal.SIGKILL)):
        arm.set(Failpoint(HERE, "step", Phase.ASK), 5)
        child = os.fork()
        if child == 0:
            asyncio.run(_walk(tmp_path / "dies-at", steps))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code


async def _walk(path: Path, steps: int) -> None:
    install(asyncio.get_running_loop(), path)
    await asyncio.create_task(step(steps))


def test_the_next_await_follows_a_kill_and_the_first_one_two_misses() -> None:
    rota = Rota()
    point = next(one for one in FAILPOINTS if one.phase is Phase.ASK)
    plan = {Phase.ASK: Kill(point, 1)}
    rota.learn(plan, [Kill(point, 1)])
    assert (rota.awaits[point], rota.kills[point]) == (2, 1)
    for _ in range(2):
        assert rota.awaits[point] == 2
        rota.learn({Phase.ASK: Kill(point, 2)}, [])
    assert (rota.awaits[point], rota.most[point]) == (1, 1)
