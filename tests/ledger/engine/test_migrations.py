"""The schema's steps on both databases: up from nothing, one back, up again; and the triggers after every step."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from ledger.engine.db import Database
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from migrations import run
from migrations.run import SchemaError
from tests.support import rows
from tests.support.databases import PostgresTemplate, sqlite_url

ROOT = Path(__file__).parents[3]
GUARDS = {
    "approvals_no_delete",
    "approvals_no_update",
    "events_no_delete",
    "events_no_update",
    "grants_fixed",
    "grants_need_approvals",
    "grants_no_delete",
    "instances_fixed",
    "instances_need_grant",
    "instances_no_delete",
    "ledger_entries_no_delete",
    "ledger_entries_no_update",
}
ROLLUP = {"facets", "rollup", "unrolled", "entry_seals", "external_costs", "bill_lines"}
TRUNCATE_GUARDS = {f"{table}_no_truncate" for table in ("approvals", "events", "grants", "instances", "ledger_entries")}


@pytest.fixture(params=["sqlite", "postgres"])
async def empty_db(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A database without any table."""
    if request.param == "sqlite":
        db = Database(sqlite_url(tmp_path / "empty.db"))
        yield db
        await db.close()
        return
    template: PostgresTemplate = request.getfixturevalue("pg_template")
    async with template.clone(template="template0") as url:
        db = Database(url)
        yield db
        await db.close()


async def triggers(db: Database) -> set[str]:
    """The names of all triggers of ours."""
    query = (
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        if db.dialect == "sqlite"
        else "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    )
    async with db.read() as tx:
        return set((await tx.execute(text(query))).scalars())


def expected(db: Database, at: str = "9999") -> set[str]:
    """Every trigger that there is at a revision."""
    notes = {"ledger_entries_unrolled"} if at >= "0012" else set()
    moves = {"instances_account_moves"} if at >= "0044" else set()
    return (GUARDS if db.dialect == "sqlite" else GUARDS | TRUNCATE_GUARDS) | notes | moves


async def tables(db: Database) -> set[str]:
    """The names of all tables but alembic's own."""
    query = (
        "SELECT name FROM sqlite_master WHERE type = 'table'"
        if db.dialect == "sqlite"
        else "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    )
    async with db.read() as tx:
        return set((await tx.execute(text(query))).scalars()) - {"alembic_version"}


#: What the steps after the first one add.
LATER = {
    "budget_limits",
    "disks",
    "delegations",
    "turns",
    "consumers",
    "api_keys",
    "api_answers",
    "seals",
    "webhooks",
    "webhook_deliveries",
    "nodes",
}


async def test_up_one_back_and_up_again(empty_db: Database) -> None:
    db = empty_db
    assert await run.current(db) is None
    await run.upgrade(db)
    assert await run.current(db) == run.newest()
    assert await triggers(db) == expected(db)
    await run.check(db)
    first = await tables(db)

    await run.downgrade(db, "-1")
    before = await run.current(db)
    assert before is not None
    assert before < run.newest()
    assert await triggers(db) == expected(db, before)
    await run.upgrade(db)
    assert await triggers(db) == expected(db)
    await run.check(db)

    await run.downgrade(db, "0001")
    assert await triggers(db) == set()
    assert await tables(db) == first - LATER - ROLLUP
    await run.upgrade(db)
    assert await triggers(db) == expected(db)
    await run.check(db)

    await run.downgrade(db, "base")
    assert await run.current(db) is None
    assert await tables(db) == set()
    assert await triggers(db) == set()
    await run.upgrade(db)
    assert await tables(db) == first
    assert await triggers(db) == expected(db)
    await run.check(db)


async def test_upgrade_twice_changes_nothing(db: Database) -> None:
    await run.upgrade(db)
    assert await run.current(db) == run.newest()
    assert await triggers(db) == expected(db)


async def test_rows_of_an_older_schema_are_kept(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, InstanceState.LIVE)
    await run.downgrade(db, "0002")
    await run.upgrade(db)
    async with db.read() as tx:
        kept = await tx.get_one(Instance, row.id)
    assert (kept.state, kept.billing_from) == (InstanceState.LIVE, row.billing_from)
    assert (kept.unbilled_at, kept.storage_from, kept.storage_until) == (None, None, None)
    with pytest.raises(DBAPIError, match="never deleted"):
        async with db.write() as tx:
            await tx.execute(text("DELETE FROM instances"))


async def test_a_failing_step_leaves_nothing_behind(empty_db: Database) -> None:
    async with empty_db.write() as tx:
        await tx.execute(text("CREATE TABLE strays (id VARCHAR(24))"))
    with pytest.raises(DBAPIError, match="strays"):
        await run.upgrade(empty_db)
    assert await tables(empty_db) == {"strays"}
    assert await run.current(empty_db) is None


async def test_check_says_what_differs(db: Database) -> None:
    async with db.write() as tx:
        await tx.execute(text("ALTER TABLE marks ADD COLUMN colour VARCHAR(8)"))
    with pytest.raises(SchemaError, match="colour"):
        await run.check(db)


async def test_check_wants_the_newest_revision(db: Database) -> None:
    await run.downgrade(db, "-1")
    with pytest.raises(SchemaError, match="gpu-shopper db upgrade"):
        await run.check(db)


async def test_a_database_of_a_newer_program_is_refused(db: Database) -> None:
    async with db.write() as tx:
        await tx.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaError, match=f"9999.*knows revisions up to {run.newest()}"):
        await run.upgrade(db)


async def test_steps_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    db = Database(sqlite_url(tmp_path / "elsewhere.db"))
    await run.upgrade(db)
    await run.check(db)
    await db.close()


async def test_replicas_that_start_together_upgrade_once(pg_template: PostgresTemplate) -> None:
    async with pg_template.clone(template="template0") as url:
        starting = (asyncio.to_thread(alembic, "upgrade", "head", GPU_SHOPPER_DATABASE_URL=url) for _ in range(2))
        assert [done.returncode for done in await asyncio.gather(*starting)] == [0, 0]
        db = Database(url)
        await run.check(db)
        await db.close()


def alembic(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run alembic's own command line in a folder with a pyproject.toml."""
    command = [str(Path(sys.executable).parent / "alembic"), *arguments]
    known = {name: value for name, value in os.environ.items() if not name.startswith("GPU_SHOPPER_")}
    return subprocess.run(command, cwd=folder, env=known | environment, capture_output=True, text=True, check=False)


def test_alembic_itself_does_the_same(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "cli.db")
    assert alembic("-x", f"url={url}", "upgrade", "head").returncode == 0
    checked = alembic("check", GPU_SHOPPER_DATABASE_URL=url)
    assert (checked.returncode, checked.stdout.strip()) == (0, "No new upgrade operations detected.")
    lost = alembic("check")
    assert lost.returncode != 0
    assert "set GPU_SHOPPER_DATABASE_URL, or give -x url=sqlite+aiosqlite:///path/to/file.db" in lost.stdout


def test_the_steps_can_be_printed_for_a_database_administrator() -> None:
    printed = alembic("-x", "url=postgresql+asyncpg://u@h/d", "upgrade", "head", "--sql").stdout
    for guard in GUARDS | TRUNCATE_GUARDS:
        assert f"CREATE TRIGGER {guard} " in printed


def test_a_new_step_is_written_in_plain_types(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "old.db")
    alembic("-x", f"url={url}", "upgrade", "head")
    with sqlite3.connect(tmp_path / "old.db") as connection:
        for column in ("reason", "last_seen_at", "price_usd_h", "absent_at", "label"):
            connection.execute(f"ALTER TABLE strays DROP COLUMN {column}")
    connection.close()
    shutil.copytree(ROOT / "migrations", tmp_path / "migrations")
    (tmp_path / "pyproject.toml").write_text('[tool.alembic]\nscript_location = "%(here)s/migrations"\n')
    made = alembic("-x", f"url={url}", "revision", "--autogenerate", "-m", "next", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    (step,) = (tmp_path / "migrations" / "versions").glob("*_next.py")
    text_of_step = step.read_text()
    assert "from sqlalchemy.dialects import postgresql" in text_of_step
    assert "ledger" not in text_of_step
    for plain in (
        "sa.Column('reason', sa.Text()",
        "sa.Column('last_seen_at', sa.DateTime(timezone=True)",
        "sa.Column('price_usd_h', sa.BigInteger()",
        "sa.Column('label', sa.String(length=48)",
        "sa.Column('absent_at', sa.JSON().with_variant(postgresql.JSONB(), \"postgresql\")",
    ):
        assert plain in text_of_step
