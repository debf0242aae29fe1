"""Approved ends of real processes while the ledger takes no write, at a start that fails, and with a broken policy."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from ledger.core.writes import amend
from ledger.kernel.states import SessionState
from ledger.models import Session
from tests.scenarios.processes.processes import Nursery, Served, fork
from tests.support.personas import STEP_S
from tests.support.serving import serving
from tests.support.stack import DOWN_S, LOOK_S, Town, town

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
#: How overdue an end must be here. In production no setting may be below 10 s.
OVERDUE_S = 2.0


@pytest.fixture
async def quick_place(sqlite_db_url: str, tmp_path: Path, processes: Nursery) -> AsyncIterator[Town]:
    """A town on SQLite whose watchdog acts soon, with a process."""
    async with town(sqlite_db_url, tmp_path, processes, "vast", end_overdue_s=OVERDUE_S) as built:
        await built.start()
        yield built


async def running(place: Town) -> None:
    await place.ask()
    await place.approve()
    await place.ready()


async def ends_in(place: Town, seconds: float) -> None:
    """Bring the approved end in, as an approval for a shorter time does."""
    session = (await place.books()).sessions[-1]
    at = place.clock.now() + timedelta(seconds=seconds)
    async with place.db.write() as tx:
        await amend(tx, Session, session.id, deadline=at)


@contextmanager
def locked(place: Town) -> Iterator[None]:
    """Another process holds the write lock of the ledger's file."""
    other = sqlite3.connect(str(place.db.url.database), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def dead(place: Town) -> None:
    """Return when nothing runs any more."""
    async with asyncio.timeout(STEP_S + 20):  # SQLite's own wait for a lock takes 15 s of it.
        while place.alive():  # noqa: ASYNC110 # There is no event to wait for.
            await asyncio.sleep(LOOK_S)  # A cloud tells nobody when an instance is gone.


async def is_over(place: Town) -> None:
    await place.until(lambda books: books.sessions[-1].state is SessionState.TERMINATED)
    await place.comes_to_rest()


async def up_again(place: Town) -> Served:
    """Start a process that may not serve yet, some time after the last one; it listens on a port that is known."""
    place.clock.travel(DOWN_S)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**place.environment, "GPU_SHOPPER_PORT": str(port)}
    bot = fork(place.nursery, environment, place.log, place.clock.ahead_s)
    bot.port = port
    place.bots.append(bot)
    return bot


async def ready(bot: Served) -> tuple[int, str]:
    """What `/readyz` of a process says."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"http://127.0.0.1:{bot.port}/readyz")
    return answer.status_code, str(answer.json()["status"])


async def test_an_end_comes_while_another_process_holds_the_lock(quick_place: Town) -> None:
    place = quick_place
    await running(place)
    await ends_in(place, 6)
    with locked(place):
        await dead(place)
        await place.screens.posted("at its approved end, directly")
        await place.screens.posted("has not been able to write to its ledger for 20 seconds")
    await place.screens.posted("can write to its ledger again")
    await is_over(place)


async def test_a_start_that_finds_the_ledger_locked_ends_what_is_overdue_and_works_after_it(quick_place: Town) -> None:
    place = quick_place
    await running(place)
    await ends_in(place, 10)
    await place.kill()
    with locked(place):
        bot = await up_again(place)
        await bot.says("serving ends only: the ledger takes no writes")
        await dead(place)
        assert await ready(bot) == (503, "ends only: the ledger takes no writes")
        await place.screens.posted("GPU Shopper started, but the ledger takes no writes")
    await bot.ready()
    assert await ready(bot) == (200, "ok")
    place.listen_to(bot)
    await is_over(place)


async def test_a_start_with_a_broken_policy_ends_what_is_overdue_and_works_after_it(quick_place: Town) -> None:
    place = quick_place
    await running(place)
    await ends_in(place, 5)
    await place.kill()
    policy = Path(place.environment["GPU_SHOPPER_POLICY"])
    good = policy.read_text()  # noqa: ASYNC240 # A small file, and nobody waits for this test.
    policy.write_text("policy: {approvers: 7")  # noqa: ASYNC240
    bot = await up_again(place)
    await bot.says("serving ends only: the policy file is broken")
    await dead(place)
    assert await ready(bot) == (503, "ends only: the policy file is broken")
    policy.write_text(good)  # noqa: ASYNC240
    await bot.ready()
    place.listen_to(bot)
    await is_over(place)


async def test_a_broken_edit_keeps_the_last_good_policy_and_a_good_one_is_taken_up(quick_place: Town) -> None:
    place = quick_place
    policy = Path(place.environment["GPU_SHOPPER_POLICY"])
    good = policy.read_text()  # noqa: ASYNC240
    policy.write_text(good.replace("U0BOB", "[[["))  # noqa: ASYNC240
    await place.screens.posted("The policy file was edited and cannot be used")
    await place.ask()
    await place.offers()
    policy.write_text(good.replace("- U0BOB\n", ""))  # noqa: ASYNC240
    await place.screens.posted("The new policy is in force")
    await place.approve()  # By Bob, who is no approver any more.
    await place.screens.told("bob", "Only approvers can do this")
    assert (await place.books()).sessions == ()
    assert (await ready(place.bot))[0] == 200


async def test_a_postgresql_that_is_read_only_at_the_start_keeps_no_instance_alive(
    pg_db_url: str, tmp_path: Path, processes: Nursery
) -> None:
    async with town(pg_db_url, tmp_path, processes, "runpod", end_overdue_s=OVERDUE_S) as place:
        await place.start()
        await running(place)
        await ends_in(place, 10)
        await place.kill()
        name = place.db.url.database
        await _alter(place, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        bot = await up_again(place)
        await bot.says("serving ends only: the ledger takes no writes")
        await dead(place)
        await _alter(place, f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await bot.ready()
        place.listen_to(bot)
        await is_over(place)


async def _alter(place: Town, line: str) -> None:
    async with place.db.writer.connect() as connection:
        await connection.execute(text("SET default_transaction_read_only = off"))
        await connection.commit()
        await connection.execute(text(line))
        await connection.commit()


async def test_the_heartbeat_comes_while_all_is_well(quick_place: Town) -> None:
    place, beats = quick_place, asyncio.Queue[str]()

    async def monitor(scope: dict[str, object], _receive: object, send: object) -> None:
        if scope["type"] == "http":
            beats.put_nowait(str(scope["path"]))
            await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
            await send({"type": "http.response.body", "body": b"OK"})  # type: ignore[operator]

    async with serving(monitor) as url:
        await place.kill()
        environment = {**place.environment, "GPU_SHOPPER_HEARTBEAT_URL": f"{url}/ping/secret-7"}
        place.bots.append(fork(place.nursery, environment, place.log, place.clock.ahead_s))
        await place.bot.ready()
        async with asyncio.timeout(STEP_S):
            assert await beats.get() == "/ping/secret-7"
    assert "secret-7" not in place.bot.said()
