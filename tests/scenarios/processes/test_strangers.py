"""Strangers call every open route, never read, and send bodies slowly: people still approve and end in time."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import pytest

from ledger.kernel.states import SessionState
from tests.bench.load import Connection, Result, signed, slash_command
from tests.scenarios.processes.processes import Nursery
from tests.support.personas import STEP_S
from tests.support.stack import LOOK_S, SIGNING, Town, town

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
#: Strangers on every open route, those who never read, and those who send a body byte by byte.
STRANGERS, SILENT, SLOW = 1500, 512, 128
#: How often a command comes from Slack, each on a new connection.
COMMANDS_PER_S = 5.0
#: Slack's acknowledgement, 99 of 100, and the slowest of all: Slack itself allows 3 s.
ACK_P99_MS, ACK_MS = 1000.0, 3000.0
#: Fewer acknowledgements have no slowest hundredth.
ENOUGH = 200
#: What an approval and an end may take longer than on a quiet day. The machine is shared with the attack.
LATER_S = 5.0
#: Memory comes back within this time, to what it was and a little more.
BACK_S, MORE_MB = 60.0, 64.0
#: The log of a minute, however often somebody is refused.
LOG_MAX = 200_000


@dataclass
class Day:
    """How long people waited."""

    approval_s: float
    end_s: float
    acks: Result
    problem: str = ""


@pytest.fixture
async def long_place(sqlite_db_url: str, tmp_path: Path, processes: Nursery) -> AsyncIterator[Town]:
    """A town on SQLite with a process that may have 4,096 files open, as a service has."""
    async with town(sqlite_db_url, tmp_path, processes, "vast") as built:
        await built.start(4096)
        yield built


@asynccontextmanager
async def strangers(port: int, seconds: float) -> AsyncIterator[dict[str, Any]]:
    """Attack inside the block, from a process of its own; what it saw is there after the block."""
    words = [str(word) for word in (port, seconds, STRANGERS, SILENT, SLOW)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.scenarios.processes.strangers", *words, stdout=pipe
    )
    seen: dict[str, Any] = {}
    try:
        yield seen
        out, _ = await process.communicate()
        seen |= json.loads(out)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def commands(port: int, seconds: float) -> Result:
    """Send signed commands at a steady rate, and note how long each acknowledgement took."""
    result = Result()

    async def send(number: int) -> None:
        connection, began = Connection(port), time.perf_counter()
        try:
            async with asyncio.timeout(STEP_S):
                status = await connection.exchange(signed(port, SIGNING, slash_command(number, "help")))
            if status == 200:
                result.latencies_s.append(time.perf_counter() - began)
            else:
                result.fail(str(status))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            result.fail(type(error).__name__)
        finally:
            connection.close()

    async with asyncio.TaskGroup() as group:
        for number in range(int(seconds * COMMANDS_PER_S)):
            group.create_task(send(number))
            await asyncio.sleep(1 / COMMANDS_PER_S)
    return result


async def timed(act: Awaitable[object]) -> float:
    """Seconds that something takes."""
    began = time.perf_counter()
    await act
    return time.perf_counter() - began


async def rents_and_ends(place: Town) -> tuple[float, float]:
    """Ask, approve and end; return the seconds from the approval to the machine, and from the command to its end."""
    known = {message.ts for message in place.screens.decidable()}
    await place.ask()
    await place.ws.until(lambda: {m.ts for m in place.screens.decidable()} - known, STEP_S)
    offers = place.screens.decidable()[-1]

    async def approve() -> None:
        assert (await place.ws.as_("bob").click(offers, "approve:1")).ok
        await runs(place, 1)

    async def end() -> None:
        session = (await place.books()).sessions[-1]
        assert (await place.ws.as_("alice").command(f"/gpu terminate {session.id} now")).ok
        await runs(place, 0)

    approval_s = await timed(approve())
    await place.until(lambda books: books.sessions[-1].state is SessionState.RUNNING)
    return approval_s, await timed(end())


async def runs(place: Town, count: int) -> None:
    """Return when so many machines run."""
    async with asyncio.timeout(STEP_S):
        while len(place.alive()) != count:  # noqa: ASYNC110 # There is no event to wait for.
            await asyncio.sleep(LOOK_S)  # A cloud tells nobody what happens.


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def processor_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def day(place: Town, seconds: float) -> Day:
    """Commands for so long, and a rental in between."""
    acks = asyncio.create_task(commands(place.bot.port, seconds))
    await asyncio.sleep(seconds / 4)
    try:
        approval_s, end_s = await rents_and_ends(place)
    except (AssertionError, TimeoutError) as error:
        return Day(inf, inf, await acks, f"{type(error).__name__}: {error}")
    return Day(approval_s, end_s, await acks)


@pytest.mark.parametrize("seconds", [15.0, pytest.param(60.0, marks=pytest.mark.soak_only)])
async def test_strangers_stop_no_approval_and_no_end(long_place: Town, seconds: float) -> None:
    place, port, pid = long_place, long_place.bot.port, long_place.bot.pid
    quiet = await day(place, 5.0)
    before_mb, before_s = memory_mb(pid), processor_s(pid)
    async with strangers(port, seconds) as seen:
        await asyncio.sleep(2.0)  # Until all of them are there.
        busy = await day(place, seconds - 3.0)
        most_mb, used_s = memory_mb(pid), processor_s(pid) - before_s
    back_s = await timed(memory_is_back(pid, before_mb + MORE_MB))
    after_mb = memory_mb(pid)
    print(f"\nquiet: ack p50 {quiet.acks.quantile_ms(0.5):.0f} ms, p99 {quiet.acks.quantile_ms(0.99):.0f} ms")
    print(f"quiet: approval {quiet.approval_s:.1f} s, end {quiet.end_s:.1f} s, {before_mb:.0f} MB")
    acks = busy.acks
    print(f"attacked for {seconds:.0f} s: ack p50 {acks.quantile_ms(0.5):.0f} ms, p99 {acks.quantile_ms(0.99):.0f} ms")
    print(f"attacked: {len(acks.latencies_s)} acks, errors {acks.errors}")
    print(f"attacked: approval {busy.approval_s:.1f} s, end {busy.end_s:.1f} s, {most_mb:.0f} MB {busy.problem}")
    print(f"processor time: bot {used_s:.1f} s, strangers {seen['processor_s']:.1f} s")
    print(f"strangers: {seen['connections']} connections, {seen['answers']}")
    print(f"after: {after_mb:.0f} MB, {back_s:.0f} s later", flush=True)
    assert not acks.errors
    assert acks.quantile_ms(0.5) <= ACK_P99_MS
    if len(acks.latencies_s) >= ENOUGH:
        assert acks.quantile_ms(0.99) <= ACK_P99_MS
    else:
        assert acks.quantile_ms(1) <= ACK_MS
    assert busy.approval_s <= quiet.approval_s + LATER_S
    assert busy.end_s <= quiet.end_s + LATER_S
    assert after_mb <= before_mb + MORE_MB
    assert len(place.bot.said()) < LOG_MAX


async def memory_is_back(pid: int, aim_mb: float) -> None:
    """Return when a process has no more memory than that, or after the time that it may take."""
    with suppress(TimeoutError):
        async with asyncio.timeout(BACK_S):
            while memory_mb(pid) > aim_mb:  # noqa: ASYNC110 # There is no event to wait for.
                await asyncio.sleep(LOOK_S)
