"""Approved ends of real processes while the ledger takes no write, at a start that fails, and with a broken policy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import httpx
import pytest
from sqlalchemy import make_url, text

from bot.services.runtime import ends_copy
from bot.services.runtime.ends_copy import NAME, load
from ledger.core.writes import amend
from ledger.engine.db import Database
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import SessionState
from ledger.models import Session
from tests.scenarios.processes.processes import Nursery, Served, fork
from tests.services.sessions.watchdog import locked
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


async def dead(place: Town) -> None:
    """Return when nothing runs any more."""
    async with asyncio.timeout(STEP_S + 20):  # SQLite's own wait for a lock takes 15 s of it.
        while place.alive():  # noqa: ASYNC110 # There is no event to wait for.
            await asyncio.sleep(LOOK_S)  # A cloud tells nobody when an instance is gone.


async def copied(place: Town, copy: Path) -> None:
    """Return when a process has copied the present end."""
    deadline = (await place.books()).sessions[-1].deadline
    async with asyncio.timeout(STEP_S):
        while [row.deadline for row in load(copy).rows] != [deadline]:  # noqa: ASYNC110 # The process tells nobody.
            await asyncio.sleep(LOOK_S)


async def is_over(place: Town) -> None:
    await place.until(lambda books: books.sessions[-1].state is SessionState.TERMINATED)
    await place.comes_to_rest()


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


async def up_again(place: Town, *, disk_full: bool = False, obeys_modes: bool = False) -> Served:
    """Start a process that may not serve yet, some time after the last one; it listens on a port that is known."""
    place.clock.travel(DOWN_S)
    port = free_port()
    environment = {**place.environment, "GPU_SHOPPER_PORT": str(port)}
    bot = fork(place.nursery, environment, place.log, place.clock.ahead_s, disk_full=disk_full, obeys_modes=obeys_modes)
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
    with locked(place.db):
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
    with locked(place.db):
        bot = await up_again(place)
        await bot.says("serving ends only: the ledger takes no writes")
        await dead(place)
        assert await ready(bot) == (503, "ends only: the ledger takes no writes")
        await place.screens.posted("GPU Shopper started, but the ledger takes no writes")
    await bot.ready()
    assert await ready(bot) == (200, "ok")
    place.listen_to(bot)
    await is_over(place)


async def test_a_start_on_a_full_disk_ends_what_is_overdue_and_works_when_there_is_room(quick_place: Town) -> None:
    place = quick_place
    await running(place)
    await ends_in(place, 10)
    await place.kill()
    bot = await up_again(place, disk_full=True)
    await bot.says("serving ends only: the ledger takes no writes")
    await dead(place)
    assert await ready(bot) == (503, "ends only: the ledger takes no writes")
    bot.disk_has_room()
    await bot.ready()
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
    await place.screens.posted("The new policy is in force. approvers: removes <@U0BOB>.")
    await place.approve()  # By Bob, who is no approver any more.
    await place.screens.told("bob", "Only approvers can do this")
    assert (await place.books()).sessions == ()
    assert (await ready(place.bot))[0] == 200


async def test_a_policy_that_others_can_change_decides_about_no_spend(quick_place: Town) -> None:
    place = quick_place
    await running(place)
    await ends_in(place, 5)
    policy = Path(place.environment["GPU_SHOPPER_POLICY"])
    good = policy.read_text()  # noqa: ASYNC240
    policy.chmod(0o666)  # noqa: ASYNC240
    policy.write_text(good.replace("- U0CAROL", "- U0CAROL\n  - U0ALICE\n  allow_self_approval: true"))  # noqa: ASYNC240
    await place.screens.posted("has mode 0666, so others can change it")
    await place.kill()
    bot = await up_again(place)
    await bot.says("serving ends only: others can change the policy file")
    await dead(place)
    assert await ready(bot) == (503, "ends only: others can change the policy file")
    policy.write_text(good)  # noqa: ASYNC240
    policy.chmod(0o644)  # noqa: ASYNC240
    await bot.ready()
    place.listen_to(bot)
    await is_over(place)


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


async def test_two_replicas_that_lose_postgresql_end_from_their_copies_and_record_it_afterwards(
    pg_db_url: str, tmp_path: Path, processes: Nursery
) -> None:
    async with town(pg_db_url, tmp_path, processes, "runpod", end_overdue_s=OVERDUE_S) as place:
        ports = [free_port() for _ in range(2)]
        replicas = {"GPU_SHOPPER_REPLICAS": ",".join(f"http://127.0.0.1:{port}" for port in ports)}
        folders = [tmp_path / f"replica-{number}" for number in range(2)]
        for port, folder in zip(ports, folders, strict=True):
            own = {"GPU_SHOPPER_PORT": str(port), "GPU_SHOPPER_DATA_DIR": str(folder)}
            bot = fork(place.nursery, {**place.environment, **replicas, **own}, place.log, place.clock.ahead_s)
            place.bots.append(bot)
            await bot.ready()
            place.listen_to(bot)
        await running(place)
        await ends_in(place, 12)
        session = (await place.books()).sessions[-1]
        async with asyncio.timeout(STEP_S):
            while not all(_copied(folder, session) for folder in folders):  # noqa: ASYNC110 # Nobody tells of a new copy.
                await asyncio.sleep(LOOK_S)
        await place.db.close()
        await _connect(pg_db_url, allowed=False)
        await dead(place)
        await place.screens.posted("from its copy, because the ledger cannot be read")
        assert [(await ready(bot))[0] for bot in place.bots] == [503, 503]
        await _connect(pg_db_url, allowed=True)
        await is_over(place)
        told = [one for one in (await place.books()).events if one.kind == EventKind.INSTANCE_ENDED_DIRECTLY]
        assert told
        assert all("from the copy of what must end" in one.reason for one in told)


def _copied(folder: Path, session: Session) -> bool:
    """Whether the copy of a replica has the session's end as it is now."""
    rows = ends_copy.load(folder / ends_copy.NAME).rows
    return [(one.session_id, one.deadline) for one in rows] == [(session.id, session.deadline)]


async def _connect(url: str, *, allowed: bool) -> None:
    """Let a database take connections, or none at all, and cut those that there are."""
    at = make_url(url)
    server = await asyncpg.connect(
        user=at.username, password=at.password, host=at.host or at.query.get("host"), port=at.port, database="postgres"
    )
    try:
        await server.execute(f'ALTER DATABASE "{at.database}" ALLOW_CONNECTIONS {allowed}')
        await server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", at.database)
    finally:
        await server.close()


async def _alter(place: Town, line: str) -> None:
    async with place.db.writer.connect() as connection:
        await connection.execute(text("SET default_transaction_read_only = off"))
        await connection.commit()
        await connection.execute(text(line))
        await connection.commit()


async def test_a_postgresql_that_refuses_every_connection_at_the_start_keeps_no_instance_alive(
    pg_db_url: str, tmp_path: Path, processes: Nursery
) -> None:
    async with town(pg_db_url, tmp_path, processes, "runpod", end_overdue_s=OVERDUE_S) as place:
        await place.start()
        await running(place)
        await ends_in(place, 15)
        await copied(place, tmp_path / NAME)  # Nothing else knows the end while the server refuses.
        await place.kill()
        await _allowed(place, allowed=False)
        bot = await up_again(place)
        await bot.says("serving ends only: the ledger cannot be reached")
        await dead(place)
        assert await ready(bot) == (503, "ends only: the ledger cannot be reached")
        await place.screens.posted("from its copy, because the ledger cannot be read")
        await _allowed(place, allowed=True)
        await bot.ready()
        place.listen_to(bot)
        await is_over(place)


async def _allowed(place: Town, *, allowed: bool) -> None:
    """Let the server take new connections to the ledger, or refuse every one. Those of the test stay open."""
    server = Database(place.db.url.set(database="postgres").render_as_string(hide_password=False))
    try:
        async with server.writer.connect() as connection:
            await connection.execute(text(f'ALTER DATABASE "{place.db.url.database}" ALLOW_CONNECTIONS {allowed}'))
            await connection.commit()
    finally:
        await server.close()


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
