"""Three real machines share a queue of 12 commands; one is lost, and the controller is killed meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.practice.reader import all_text
from ledger.kernel.end_reason import EndReason
from ledger.kernel.job_state import JobState
from ledger.kernel.states import SessionState
from ledger.queries.audit import Books
from providers.sandbox.nodes.process_nodes import ProcessNode
from tests.scenarios.kills.walk import BILL
from tests.scenarios.nodes.conftest import Build, NodeTown
from tests.scenarios.nodes.test_github_action import typed
from tests.scenarios.nodes.test_jobs import SPEED
from tests.scenarios.nodes.test_queue import FOLDER, has_reached, stored

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MACHINES, GPUS, COMMANDS, FAILS = 3, 2, 12, 7
#: A command says that it ran here, and waits until its machine may continue.
COMMAND = (
    'echo "$QUEUE_NUMBER" >>"$STARTUP_FOLDER/ran"; until [ -e "$STARTUP_FOLDER/go" ]; do sleep 0.1; done; '
    "sleep 0.3; echo the end of {number}; exit {code}"
)
WAIT_S = 180.0


async def handed_over(here: NodeTown, folder: Path) -> dict[str, str]:
    """Hand over the job as a program does, let Bob approve it once, and return the program's environment."""
    environment = {**here.town.environment, "HOME": str(folder)}
    made = await typed(folder, environment, "keys", "create", "atlas", "--owner", "operator:ada", "--json")
    url = environment["GPU_SHOPPER_NODE_URL"]
    environment |= {"GPU_SHOPPER_URL": url, "GPU_SHOPPER_API_KEY": json.loads(made)["token"]}
    place = here.town
    job: dict[str, Any] = {
        "resources": {"gpu": f"{place.clouds[place.cloud].STAPLE}:{GPUS}"},
        "nodes": MACHINES,
        "hours": "2h",
        "candidates": [place.cloud],
        "queue": [COMMAND.format(number=n, code=3 if n == FAILS else 0) for n in range(1, COMMANDS + 1)],
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    await typed(folder, environment, "run", "job.yaml")
    await place.approve()
    return environment


def ran(node: ProcessNode) -> list[int]:
    """The commands that began on a machine."""
    file = node.root / FOLDER / "ran"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def results(books: Books, count: int) -> bool:
    """Whether so many results are in the ledger."""
    return len(books.results) >= count


async def test_each_result_is_there_once_although_a_machine_is_lost(build: Build, tmp_path: Path) -> None:
    async with build("tensordock", {"done_grace_s": 3}, clock_speed=SPEED) as here:
        place, folder = here.town, tmp_path / "program"
        folder.mkdir()
        environment = await handed_over(here, folder)
        await here.until(lambda: len(here.nodes.running) == MACHINES, WAIT_S)
        nodes = dict(here.nodes.running)
        await here.until(lambda: all(len(ran(node)) == GPUS for node in nodes.values()), WAIT_S)
        assert len({n for node in nodes.values() for n in ran(node)}) == MACHINES * GPUS
        await place.until(lambda books: all(row.reachable_at for row in books.instances))
        await place.kill()  # The controller, while each machine has commands that wait for their turn.
        lost, *left = nodes
        mine = ran(nodes[lost])
        place.clouds[place.cloud].disturb(lost.partition("/")[2], "vanish")
        for key in left:
            (nodes[key].root / FOLDER / "go").touch()
        await place.restart()
        await here.town.until(partial(results, count=5))
        await place.kill()
        await place.restart()
        for state in (JobState.FAILED, SessionState.TERMINATED):
            await place.until(partial(has_reached, state))
        assert await place.ws.until(
            lambda: [one for one in place.ws.channel_messages() if "queue 11/12 done, 1 failed" in all_text(one)]
        )
        # When a machine ended that was lost while nobody looked, only its cloud's own bill says.
        await place.comes_to_rest(creates=MACHINES, but=BILL)
        await here.nothing_left()
        books = await place.books()
        rows = await stored(here)
        assert [row.number for row in rows] == list(range(1, COMMANDS + 1))
        assert [row.exit_code for row in rows] == [3 if row.number == FAILS else 0 for row in rows]
        assert [row.log_tail.strip() for row in rows] == [f"the end of {row.number}" for row in rows]
        by_machine = Counter(row.instance_id for row in rows)
        assert len(by_machine) == MACHINES - 1
        again = {claim.number for claim in books.claims if claim.round > 0}
        assert set(mine) <= again, "what ran on the lost machine ran again elsewhere"
        assert len(books.approvals) == 1
        assert EndReason.LOST in {row.outcome_code for row in books.instances}
        found = json.loads(
            await typed(folder, environment, "session", "commands", books.sessions[-1].request_id, "--json")
        )
        costs = [Decimal(one["cost_usd"]) for one in found["items"]]
        assert sum(costs, Decimal(found["idle_usd"])) == Decimal(found["total_usd"])
        assert all(cost > 0 for cost in costs)
