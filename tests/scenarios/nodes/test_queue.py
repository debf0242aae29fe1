"""A queue of 12 commands on a machine with 4 GPUs, whose agent and whose controller are killed twice each."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.practice.reader import all_text
from ledger.kernel.job_state import JobState
from ledger.kernel.states import SessionState
from ledger.models import CommandResult
from ledger.queries.audit import Books
from ledger.queries.jobs.command_results import results_of
from providers.sandbox.nodes.first_process import processes
from providers.sandbox.nodes.folders import MARK
from tests.scenarios.nodes.conftest import Build, NodeTown
from tests.scenarios.nodes.test_github_action import typed
from tests.scenarios.nodes.test_jobs import SPEED

pytestmark = pytest.mark.slow
GPUS, COMMANDS, FAILS = 4, 12, 7
FOLDER = "opt/gpu-shopper"
#: Each command says where it ran. Those behind the first four wait for a file, so that the kills come in between.
COMMAND = (
    'echo "$QUEUE_NUMBER $CUDA_VISIBLE_DEVICES" >>"$STARTUP_FOLDER/ran"; '
    'until [ -e "$STARTUP_FOLDER/go-{turn}" ]; do sleep 0.1; done; sleep 0.5; echo the end of {number}; exit {code}'
)


def command(number: int) -> str:
    """The text of one command; they come in three turns."""
    return COMMAND.format(turn=(number - 1) // GPUS, number=number, code=3 if number == FAILS else 0)


async def handed_over(here: NodeTown, folder: Path) -> dict[str, str]:
    """Hand over the job as a program does, let Bob approve it, and return the program's environment."""
    environment = {**here.town.environment, "HOME": str(folder)}
    made = await typed(folder, environment, "keys", "create", "atlas", "--owner", "operator:ada", "--json")
    url = environment["GPU_SHOPPER_NODE_URL"]
    environment |= {"GPU_SHOPPER_URL": url, "GPU_SHOPPER_API_KEY": json.loads(made)["token"]}
    place = here.town
    job: dict[str, Any] = {
        "resources": {"gpu": f"{place.clouds[place.cloud].STAPLE}:{GPUS}"},
        "hours": "2h",
        "candidates": [place.cloud],
        "queue": [command(number) for number in range(1, COMMANDS + 1)],
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    await typed(folder, environment, "run", "job.yaml")
    await place.approve()
    return environment


def of_agent(here: NodeTown, *names: str) -> list[int]:
    """The processes of the newest machine's agent that have one of these names."""
    mark, found = f"{MARK}={here.node().root}".encode(), []
    for pid in processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            named = words[-2:-1] and words[-2].decode() in names
            if named and mark in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


async def kill(here: NodeTown, *names: str) -> None:
    """`kill -9` of these processes of the agent; others take their place."""
    killed = of_agent(here, *names)
    assert killed, names
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    await here.until(lambda: of_agent(here, "report") and not set(of_agent(here, *names)) & set(killed))


def go(here: NodeTown, turn: int) -> None:
    """Let the commands of a turn end."""
    (here.node().root / FOLDER / f"go-{turn}").touch()


async def stored(here: NodeTown) -> list[CommandResult]:
    """The results in the ledger."""
    session = (await here.town.books()).sessions[-1]
    async with here.town.db.read() as tx:
        return await results_of(tx, session.id)


async def begun(here: NodeTown, count: int) -> None:
    """So many commands began."""
    await here.until(lambda: len(here.read(f"{FOLDER}/ran").splitlines()) >= count)


async def test_each_result_is_there_once_and_the_bill_is_shared(build: Build, tmp_path: Path) -> None:
    async with build("vast", {"done_grace_s": 3}, clock_speed=SPEED) as here:
        place, folder = here.town, tmp_path / "program"
        folder.mkdir()
        environment = await handed_over(here, folder)
        await here.until(lambda: here.nodes.running)
        await begun(here, GPUS)
        await kill(here, "report", "run-queue")  # The agent, for the first time.
        go(here, 0)
        await begun(here, 2 * GPUS)
        await place.kill()  # The controller, for the first time.
        await kill(here, "run-queue", "run-command")  # The agent again, with what waits for each command's end.
        go(here, 1)
        await begun(here, 3 * GPUS)
        await place.restart()
        await here.row_where(lambda row: (row.report.get("queue") or {}).get("failed"))
        assert await place.ws.until(
            lambda: [
                one for one in place.ws.channel_messages() if "running (queue 7/12 done, 1 failed)" in all_text(one)
            ]
        )
        await place.kill()  # The controller, for the second time.
        go(here, 2)
        await here.until(lambda: here.read(f"{FOLDER}/queue/journal.jsonl").count('"ended"') == COMMANDS)
        await place.restart()
        for state in (JobState.FAILED, SessionState.TERMINATING, SessionState.TERMINATED):
            await place.until(partial(has_reached, state))  # Each in a time of its own.
        await place.comes_to_rest()
        await here.nothing_left()
        await each_is_there_once(here)
        await the_bill_is_shared(here, folder, environment)


def has_reached(state: str, books: Books) -> bool:
    """Whether the session, or its job, came to a state, as the audit log says."""
    return any(one.after == state for one in books.events if one.subject == books.sessions[-1].id)


async def each_is_there_once(here: NodeTown) -> None:
    """Twelve results, each with its exit code and the end of its log, and one result of the job."""
    rows = await stored(here)
    assert [row.number for row in rows] == list(range(1, COMMANDS + 1))
    assert [row.exit_code for row in rows] == [3 if row.number == FAILS else 0 for row in rows]
    assert [row.log_tail.strip() for row in rows] == [f"the end of {row.number}" for row in rows]
    assert set(Counter(row.gpu for row in rows)) == set(range(GPUS))
    books = await here.town.books()
    assert (books.sessions[-1].job_state, books.sessions[-1].job_exit_code) == (JobState.FAILED, 1)
    (event,) = [one for one in books.events if one.kind == "job.ended"]
    assert event.reason == "The job failed, queue 11/12 done, 1 failed."
    assert len([row for row in books.instances if row.sent_at]) == 1


async def the_bill_is_shared(here: NodeTown, folder: Path, environment: dict[str, str]) -> None:
    """The shares and the idle rest are the bill, and each share is price × time × its part of the GPUs."""
    session = (await here.town.books()).sessions[-1]
    found = json.loads(await typed(folder, environment, "session", "commands", session.request_id, "--json"))
    shown = json.loads(await typed(folder, environment, "session", "show", session.request_id, "--json"))
    costs = [Decimal(one["cost_usd"]) for one in found["items"]]
    total, idle = Decimal(found["total_usd"]), Decimal(found["idle_usd"])
    assert sum(costs, idle) == total == Decimal(shown["cost_usd"])
    assert shown["job"]["line"] == "failed (queue 11/12 done, 1 failed)"
    (row,) = (await here.town.books()).instances
    assert row.billing_from is not None
    assert row.ended_at is not None
    billed_s = Decimal((row.ended_at - row.billing_from).total_seconds())
    for one, cost in zip(await stored(here), costs, strict=True):
        took_s = Decimal((one.ended_at - one.started_at).total_seconds())
        assert abs(cost - total * took_s / billed_s / GPUS) <= Decimal("0.000001")
        assert cost > 0
