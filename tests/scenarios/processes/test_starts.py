"""Starts that can't serve: they end what is overdue from the copy, say why, and work once the cause is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from bot.services.runtime.ends_copy import NAME
from ledger.kernel.states import SessionState
from migrations.run import newest
from tests.scenarios.processes.processes import Nursery
from tests.scenarios.processes.test_ends import OVERDUE_S, copied, dead, ends_in, is_over, ready, running, up_again
from tests.support.stack import Town, town

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
async def rented(db_url: str, tmp_path: Path, processes: Nursery) -> AsyncIterator[Town]:
    """A town whose process was killed while a machine ran that ends soon, and whose label key is in its data folder."""
    cloud = "vast" if db_url.startswith("sqlite") else "runpod"
    async with town(db_url, tmp_path, processes, cloud, end_overdue_s=OVERDUE_S) as place:
        given = dict(place.environment)
        for name, file in (("GPU_SHOPPER_LABEL_KEY", "label.key"), ("GPU_SHOPPER_DEPLOYMENT", "deployment.id")):
            path = data(place, tmp_path) / file
            path.write_text(given.pop(name))
            path.chmod(0o600)
        place.environment = given
        await place.start()
        await running(place)
        await ends_in(place, 10)
        await copied(place, data(place, tmp_path) / NAME)
        await place.kill()
        yield place


def data(place: Town, folder: Path) -> Path:
    """Where the label key and the copy are."""
    return Path(str(place.db.url.database)).parent if place.db.dialect == "sqlite" else folder


async def at_revision(place: Town, revision: str, readable_from: str) -> None:
    async with place.db.write() as tx:
        values = {"at": revision, "oldest": readable_from}
        await tx.execute(text("UPDATE alembic_version SET version_num = :at, readable_from = :oldest"), values)


async def test_a_start_on_a_newer_schema_ends_what_is_overdue_and_names_what_to_install(rented: Town) -> None:
    place = rented
    await at_revision(place, "9999", "9000")
    bot = await up_again(place)
    await bot.says("serving ends only: the ledger has another schema")
    await dead(place)
    assert await ready(bot) == (503, "ends only: the ledger has another schema")
    await place.screens.posted("Install a version of GPU Shopper that knows revision 9000")
    await place.screens.posted("from its copy, because the ledger cannot be read")
    books = await place.books()
    assert books.instances[-1].terminate_asked_at is None, "this program wrote to a ledger that it can't work on"
    await at_revision(place, newest(), "0078")
    await bot.ready()
    place.listen_to(bot)
    await is_over(place)


async def test_a_start_on_a_newer_schema_that_says_it_is_readable_serves(rented: Town) -> None:
    place = rented
    async with place.db.write() as tx:
        await tx.execute(text("ALTER TABLE instances ADD COLUMN of_a_later_release VARCHAR(8)"))
        await tx.execute(text("CREATE TABLE of_a_later_release (id INTEGER PRIMARY KEY)"))
    await at_revision(place, "9999", newest())
    bot = await up_again(place)
    await bot.ready()
    place.listen_to(bot)
    await is_over(place)
    await running(place)
    await ends_in(place, 5)
    await dead(place)
    await place.until(lambda books: books.sessions[-1].state is SessionState.TERMINATED)
    await place.comes_to_rest(creates=2)


async def test_a_start_without_its_label_key_makes_no_new_one_and_ends_what_is_overdue(
    rented: Town, tmp_path: Path
) -> None:
    place = rented
    key = data(place, tmp_path) / "label.key"
    content = key.read_text()
    key.unlink()
    bot = await up_again(place)
    await bot.says("serving ends only: the label key is missing")
    await dead(place)
    assert await ready(bot) == (503, "ends only: the label key is missing")
    await place.screens.posted("Put label.key and deployment.id back into")
    assert not key.exists()
    key.write_text(content)
    key.chmod(0o644)
    await bot.says("serving ends only: the label key cannot be used")
    key.chmod(0o600)
    await bot.ready()
    place.listen_to(bot)
    await is_over(place)


async def test_a_start_on_a_read_only_disk_works_once_the_disk_can_be_written(
    sqlite_db_url: str, tmp_path: Path, processes: Nursery
) -> None:
    """SQLite's shared memory stays read-only in a process until its last connection is closed."""
    async with town(sqlite_db_url, tmp_path, processes, "vast", end_overdue_s=OVERDUE_S) as place:
        await place.start()
        await running(place)
        await ends_in(place, 10)
        await place.kill()
        folder = data(place, tmp_path)
        modes = [(path, path.stat().st_mode) for path in (*folder.iterdir(), folder)]
        for path, mode in modes:
            path.chmod(mode & ~0o222)
        bot = await up_again(place, obeys_modes=True)
        await bot.says("serving ends only: the ledger takes no writes")
        await dead(place)
        assert await ready(bot) == (503, "ends only: the ledger takes no writes")
        for path, mode in reversed(modes):
            path.chmod(mode)
        await bot.ready()
        place.listen_to(bot)
        await is_over(place)
