"""A start that can't serve says why; where a copy of what must end is there, it is served until the cause is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy import text
from starlette.types import ASGIApp

from bot.clock import SystemClock
from bot.end_watch import EndWatch
from bot.main import slack_settings
from bot.rules.values.labels import DEPLOYMENT_FILE, KEY_FILE
from bot.services.runtime import ends_copy
from bot.services.runtime.context import Context
from bot.services.runtime.ends_copy import NAME, EndsCopy
from bot.settings import Settings, stored_identity
from bot.settings.identity import IdentityError
from bot.startup import NotNow, prepared, prepared_in_time
from bot.wiring import build_labels, close
from ledger.engine.db import Database
from migrations.run import SchemaError, newest, upgrade
from tests.support import rows
from tests.support.serving import serving
from tests.test_main import surroundings

#: How the ledger's schema is set for a test: its revision, and from which one on code can work on it.
SCHEMA = "UPDATE alembic_version SET version_num = '{}', readable_from = {}"
OTHER, MISSING, UNUSABLE = "the ledger has another schema", "the label key is missing", "the label key cannot be used"
LOOSE = "others can reach its files"


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[Settings]:
    """The settings of a deployment that has served: a ledger, a label key, and a copy of what must end."""
    async with surroundings(tmp_path) as around:
        given = around.settings()
        db = Database(given.database)
        await upgrade(db)
        await db.close()
        build_labels(given)
        ends_copy.save(given.identity_dir / NAME, EndsCopy(SystemClock().now()))
        yield given


async def at_schema(settings: Settings, revision: str, readable_from: str) -> None:
    db = Database(settings.database)
    async with db.write() as tx:
        await tx.execute(text(SCHEMA.format(revision, readable_from)))
    await db.close()


async def start(settings: Settings, *, migrate: bool = True) -> str:
    """Try a start; why it can't serve, "" where it can."""
    try:
        watch = EndWatch(settings, SystemClock(), slack_settings(settings))
        ctx = await prepared(settings, SystemClock(), watch, migrate=migrate)
    except NotNow as error:
        if error.ledger_refused is not (str(error) == OTHER):
            raise AssertionError(f"{error}: the ledger is refused for its schema alone") from error
        return str(error)
    await close(ctx)
    return ""


async def broken_schema(settings: Settings) -> None:
    await at_schema(settings, "9999", "'9000'")


async def unstated_schema(settings: Settings) -> None:
    await at_schema(settings, "9999", "NULL")


async def ancient_schema(settings: Settings) -> None:
    await at_schema(settings, "0037", "NULL")


async def no_key(settings: Settings) -> None:
    (settings.identity_dir / KEY_FILE).unlink()


async def no_name(settings: Settings) -> None:
    (settings.identity_dir / DEPLOYMENT_FILE).unlink()


async def loose_key(settings: Settings) -> None:
    (settings.identity_dir / KEY_FILE).chmod(0o644)


async def half_a_key(settings: Settings) -> None:
    (settings.identity_dir / KEY_FILE).write_text("abc")


async def no_file_but_a_folder(settings: Settings) -> None:
    (settings.identity_dir / KEY_FILE).unlink()
    (settings.identity_dir / KEY_FILE).mkdir(mode=0o700)


def ledger_of(settings: Settings) -> Path:
    """The file of the ledger."""
    return settings.sqlite_file or Path()


async def loose_ledger(settings: Settings) -> None:
    ledger_of(settings).chmod(0o640)


async def damaged_ledger(settings: Settings) -> None:
    ledger_of(settings).write_bytes(b"no database " * 1_000)


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [
        (broken_schema, OTHER),
        (unstated_schema, OTHER),
        (ancient_schema, OTHER),
        (no_key, MISSING),
        (no_name, MISSING),
        (loose_key, UNUSABLE),
        (half_a_key, UNUSABLE),
        (no_file_but_a_folder, UNUSABLE),
        (loose_ledger, LOOSE),
        (damaged_ledger, "the ledger cannot be reached"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
async def test_a_start_that_cannot_serve_says_why(
    settings: Settings, trouble: Callable[[Settings], Awaitable[None]], cause: str
) -> None:
    assert await start(settings) == ""
    before = sorted(path.name for path in settings.identity_dir.iterdir())
    await trouble(settings)
    assert await start(settings) == cause
    there = {path.name for path in settings.identity_dir.iterdir()}
    assert there <= set(before), "a start that can't serve makes no new key"


async def test_a_new_data_folder_beside_a_ledger_with_instances_makes_no_second_key(settings: Settings) -> None:
    """Another host, or an emptied volume: the ledger is the old one."""
    db = Database(settings.database)
    async with db.write() as tx:
        await rows.instance(tx)
    await db.close()
    for name in (KEY_FILE, DEPLOYMENT_FILE, NAME):
        (settings.identity_dir / name).unlink()
    watch = EndWatch(settings, SystemClock(), slack_settings(settings))
    preparing = prepared_in_time(
        lambda: prepared(settings, watch.clock, watch, migrate=True), watch, serving_nothing, asyncio.Event()
    )
    with pytest.raises(IdentityError, match=r"Put label\.key and deployment\.id back into"):
        await preparing
    assert stored_identity(settings.identity_dir, None, None) == (None, None)
    given = settings.model_copy(update={"label_key": SecretStr("ab" * 32), "deployment": "tst1"})
    assert await start(given) == ""


async def test_a_first_start_makes_its_key(settings: Settings) -> None:
    for name in (KEY_FILE, DEPLOYMENT_FILE, NAME):
        (settings.identity_dir / name).unlink()
    ledger_of(settings).unlink()
    assert await start(settings) == ""
    assert None not in stored_identity(settings.identity_dir, None, None)


async def test_ends_come_while_the_file_of_the_ledger_can_not_be_made(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.startup.AGAIN_S", 0.05)
    monkeypatch.setattr("bot.end_watch.EVERY_S", 0.05)
    file = ledger_of(settings)
    away = file.rename(file.with_name("away.db"))
    for beside in ("-wal", "-shm"):
        file.with_name(f"{file.name}{beside}").unlink(missing_ok=True)
    file.symlink_to("/no/such/folder/ledger.db")
    async with in_time(settings) as (watch, task, urls), asyncio.timeout(20):
        while not (urls and watch.healthy):  # noqa: ASYNC110 # The thread tells nobody.
            await asyncio.sleep(0.01)
        assert not watch.writable
        away.replace(file)
        assert await asyncio.shield(task) is not None
        while not watch.writable:  # noqa: ASYNC110 # As above.
            await asyncio.sleep(0.01)


async def test_an_older_schema_waits_where_the_start_must_not_upgrade_it(settings: Settings) -> None:
    await at_schema(settings, "0076", "NULL")
    assert await start(settings, migrate=False) == OTHER


async def test_a_newer_schema_that_this_program_can_work_on_is_served(settings: Settings) -> None:
    await at_schema(settings, "9999", f"'{newest()}'")
    for migrate in (True, False):
        assert await start(settings, migrate=migrate) == ""


@asynccontextmanager
async def in_time(settings: Settings) -> AsyncIterator[tuple[EndWatch, asyncio.Task[Context | None], list[str]]]:
    """A start under way: its watch, its task, and where it serves by now."""
    watch, urls = EndWatch(settings, SystemClock(), slack_settings(settings)), []

    @asynccontextmanager
    async def served(app: ASGIApp) -> AsyncIterator[None]:
        async with serving(app) as url:
            urls.append(url)
            yield

    stopping = asyncio.Event()
    preparing = prepared_in_time(lambda: prepared(settings, watch.clock, watch, migrate=True), watch, served, stopping)
    task = asyncio.create_task(preparing)
    try:
        yield watch, task, urls
    finally:
        stopping.set()
        ctx = await asyncio.wait_for(task, 20)
        if ctx is not None:
            await close(ctx)
        await watch.stop()


async def test_it_serves_ends_only_and_says_so_until_the_cause_is_gone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.startup.AGAIN_S", 0.05)
    await broken_schema(settings)
    async with in_time(settings) as (watch, task, urls), httpx.AsyncClient(trust_env=False) as client:
        async with asyncio.timeout(20):
            while not urls:  # noqa: ASYNC110 # The start tells nobody.
                await asyncio.sleep(0.01)
        answer = await client.get(f"{urls[0]}/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, f"ends only: {OTHER}")
        assert (await client.get(f"{urls[0]}/healthz")).status_code == 200
        assert (watch.writable, watch.problem) == (False, OTHER)
        await no_key(settings)
        async with asyncio.timeout(20):
            while MISSING not in (await client.get(f"{urls[0]}/readyz")).text:  # noqa: ASYNC110 # As above.
                await asyncio.sleep(0.01)
        (settings.identity_dir / KEY_FILE).write_text("ab" * 32)
        (settings.identity_dir / KEY_FILE).chmod(0o600)
        await at_schema(settings, newest(), "'0078'")
        ctx = await asyncio.wait_for(asyncio.shield(task), 20)
        assert ctx is not None
        assert watch.refused == ""


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (broken_schema, SchemaError),
        (loose_key, IdentityError),
        (half_a_key, IdentityError),
        (loose_ledger, IdentityError),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
async def test_without_a_copy_nothing_can_be_overdue_and_the_start_ends_with_its_sentence(
    settings: Settings, trouble: Callable[[Settings], Awaitable[None]], error: type[Exception]
) -> None:
    await trouble(settings)
    (settings.identity_dir / NAME).unlink()
    watch = EndWatch(settings, SystemClock(), slack_settings(settings))
    with pytest.raises(error):
        await prepared_in_time(
            lambda: prepared(settings, watch.clock, watch, migrate=True), watch, serving_nothing, asyncio.Event()
        )


@asynccontextmanager
async def serving_nothing(_: ASGIApp) -> AsyncIterator[None]:
    yield
    raise AssertionError("something was served")
