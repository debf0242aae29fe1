"""The schema's steps on both databases: up from nothing, one step further and back, and what is refused."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from ledger.engine.db import Database
from ledger.kernel.states import InstanceState
from ledger.models import Base, Instance
from ledger.models.retired import RETIRED
from migrations import run
from migrations.run import SchemaError, SchemaState
from tests.ledger.engine.schema import (
    BASELINE,
    GUARDS,
    TRUNCATE_GUARDS,
    described,
    expected,
    fingerprint,
    schema,
    tables,
    triggers,
)
from tests.support import rows
from tests.support.databases import PostgresTemplate, sqlite_url

ROOT = Path(__file__).parents[3]
#: A step of a later version, as a person would write it.
NEXT = "9998"
NEXT_STEP = f"""
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{run.newest()}"


def upgrade():
    op.add_column("instances", sa.Column("colour", sa.String(8)))


def downgrade():
    op.drop_column("instances", "colour")
"""


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


@pytest.fixture
def folder_with_next_step(tmp_path: Path) -> Path:
    """The schema's steps and one more, as a later version has them."""
    folder = tmp_path / "migrations"
    shutil.copytree(ROOT / "migrations", folder)
    (folder / "versions" / f"{NEXT}_next.py").write_text(NEXT_STEP)
    return folder


async def at_revision(db: Database, revision: str, readable_from: str | None = None) -> None:
    """Say that the database is at another revision, as an older or a newer program would have left it."""
    async with db.write() as tx:
        await tx.execute(
            text("UPDATE alembic_version SET version_num = :at, readable_from = :oldest"),
            {"at": revision, "oldest": readable_from},
        )


async def test_up_and_up_again(empty_db: Database) -> None:
    db = empty_db
    assert await run.current(db) is None
    with pytest.raises(SchemaError, match="There is no ledger here yet"):
        await run.require_newest(db)
    for _ in range(2):
        await run.upgrade(db)
        await run.require_newest(db)
        assert await run.current(db) == run.newest()
        assert await triggers(db) == expected(db)
        await run.check(db)


async def test_the_baseline_is_frozen(empty_db: Database) -> None:
    await run.upgrade(empty_db, "0044")
    assert await fingerprint(empty_db) == BASELINE[empty_db.dialect], (
        "Leave the baseline as it is and add a step after it."
    )


async def test_the_steps_make_what_the_models_say(empty_db: Database) -> None:
    """Also in what `run.check` leaves out. Only the order of columns and indexes is the steps' own."""

    def by_models(connection: Connection) -> list[str]:
        Base.metadata.create_all(connection)
        return described(connection)

    async with empty_db.writer.connect() as connection:
        wanted = await connection.run_sync(by_models)
        await connection.rollback()
    await run.upgrade(empty_db)
    made = [line for line in await schema(empty_db) if line.split(" ")[1] not in {"trigger", "function"}]
    assert sorted(made) == sorted(wanted)


def test_a_retired_column_stays_in_the_schema_and_no_code_can_use_it() -> None:
    for table, columns in RETIRED.items():
        for column in columns:
            assert column.name in Base.metadata.tables[table].columns
            assert column.nullable or column.server_default is not None
            (mapper,) = (one for one in Base.registry.mappers if one.local_table is Base.metadata.tables[table])
            assert column.name not in mapper.attrs


async def test_a_later_step_keeps_rows_and_triggers_and_goes_back(
    db: Database, folder_with_next_step: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = run.newest()
    async with db.write() as tx:
        row = await rows.instance(tx, InstanceState.LIVE)
    with monkeypatch.context() as later:
        later.setattr(run, "FOLDER", folder_with_next_step)
        with pytest.raises(
            SchemaError, match=f"at revision {known}, and this program needs {NEXT}. Run `gpu-shopper db upgrade`"
        ):
            await run.require_newest(db)
        with pytest.raises(SchemaError, match="gpu-shopper db upgrade"):
            await run.check(db)
        await run.upgrade(db)
        assert await run.current(db) == NEXT
        assert await triggers(db) == expected(db)
        with pytest.raises(SchemaError, match="colour"):
            await run.check(db)
    for work in (run.upgrade(db), run.require_newest(db)):  # It only added something, so this program works on.
        await work
    assert await run.current(db) == NEXT
    with pytest.raises(SchemaError, match=f"at revision {NEXT}, and this program knows revisions up to {known}"):
        await run.downgrade(db, "-1")
    with monkeypatch.context() as later:
        later.setattr(run, "FOLDER", folder_with_next_step)
        await run.downgrade(db, "-1")
    await run.check(db)
    assert await triggers(db) == expected(db)
    async with db.read() as tx:
        kept = await tx.get_one(Instance, row.id)
    assert (kept.state, kept.billing_from) == (InstanceState.LIVE, row.billing_from)
    with pytest.raises(DBAPIError, match="never deleted"):
        async with db.write() as tx:
            await tx.execute(text("DELETE FROM instances"))


async def test_a_ledger_says_which_older_programs_can_work_on_it(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = run.newest()
    assert await run.state(db) == SchemaState(known, "0078")
    await at_revision(db, "9999", known)
    await run.require_newest(db)
    await run.upgrade(db)
    await at_revision(db, "9999", "9000")
    install = f"^The ledger is at revision 9999, .* up to {known}. Install a version of .* that knows revision 9000.$"
    for work in (run.require_newest(db), run.upgrade(db)):
        with pytest.raises(SchemaError, match=install):
            await work
    await at_revision(db, known, "0078")
    folder = tmp_path / "migrations"
    shutil.copytree(ROOT / "migrations", folder)
    contracts = NEXT_STEP.replace(
        "from alembic import op", "from alembic import op\nfrom migrations.readable_from import *"
    )
    contracts = contracts.replace("def downgrade", "    set_readable_from(revision)\n\n\ndef downgrade")
    (folder / "versions" / f"{NEXT}_next.py").write_text(contracts)
    with monkeypatch.context() as later:
        later.setattr(run, "FOLDER", folder)
        await run.upgrade(db)
        await run.require_newest(db)
    assert await run.state(db) == SchemaState(NEXT, NEXT)
    with pytest.raises(SchemaError, match=f"Install a version of GPU Shopper that knows revision {NEXT}"):
        await run.require_newest(db)


def test_a_step_that_takes_something_away_says_so() -> None:
    """Expand, migrate, contract: what the release before reads stays, or the ledger refuses that release."""
    for file in (ROOT / "migrations" / "versions").rglob("[0-9]*.py"):
        tree = ast.parse(file.read_text())
        if file.name[:4] <= "0078":
            continue  # Programs of before refuse every later revision anyway.
        (upgrade,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "upgrade")
        assert not narrows(upgrade) or "set_readable_from(revision)" in ast.unparse(upgrade), file.name


@pytest.mark.parametrize(
    ("line", "narrow"),
    [
        ('op.add_column("a", sa.Column("b", sa.String(8)))', False),
        ('op.add_column("a", sa.Column("b", sa.Integer, nullable=False, server_default="0"))', False),
        ('op.add_column("a", sa.Column("b", sa.Integer, nullable=False))', True),
        ('op.create_table("a")', False),
        ('op.drop_column("a", "b")', True),
        ('op.rename_table("a", "b")', True),
        ('op.alter_column("a", "b", nullable=False)', True),
        ('op.execute("ALTER TABLE a RENAME COLUMN b TO c")', True),
        ('op.execute("UPDATE a SET b = 1")', False),
    ],
)
def test_what_takes_something_away_is_known(line: str, narrow: bool) -> None:
    (step,) = ast.parse(f"def upgrade():\n    {line}").body
    assert isinstance(step, ast.FunctionDef)
    assert narrows(step) is narrow


def narrows(upgrade: ast.FunctionDef) -> bool:
    """Whether a step drops, renames or changes something, or adds a column that an older program does not fill."""
    for call in (node for node in ast.walk(upgrade) if isinstance(node, ast.Call)):
        name, said = ast.unparse(call.func), ast.unparse(call)
        if re.search(r"\b(drop|rename|alter)_", name) or "create_check_constraint" in name:
            return True
        if name.endswith("execute") and re.search(r"\b(DROP|RENAME|ALTER)\b", said):
            return True
        if name.endswith("Column") and "nullable=False" in said and "server_default" not in said:
            return True
    return False


async def test_nothing_is_below_the_baseline(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, InstanceState.LIVE)
    with pytest.raises(SchemaError, match=r"^The ledger can't go back below revision 0044: .* to a new database\.$"):
        await run.downgrade(db, "base")
    await run.check(db)
    assert await triggers(db) == expected(db)
    async with db.read() as tx:
        assert (await tx.get_one(Instance, row.id)).state is InstanceState.LIVE


@pytest.mark.parametrize(
    ("revision", "says"),
    [
        ("0037", "is at revision 0037, and this program upgrades ledgers from revision 0044 on. Check out commit "),
        ("9999", "is at revision 9999, and this program knows revisions up to "),
        ("c0ffee", "is at revision c0ffee, and this program knows revisions up to "),
    ],
)
async def test_another_programs_revision_is_refused(db: Database, revision: str, says: str) -> None:
    await at_revision(db, revision)
    for work in (run.upgrade(db), run.downgrade(db, "-1"), run.check(db), run.require_newest(db)):
        with pytest.raises(SchemaError, match=f"^The ledger {says}"):
            await work
    assert await run.current(db) == revision


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


async def test_steps_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    db = Database(sqlite_url(tmp_path / "elsewhere.db"))
    await run.upgrade(db)
    await run.check(db)
    await db.close()


@pytest.mark.slow
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


@pytest.mark.slow
def test_alembic_itself_does_the_same(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "cli.db")
    assert alembic("-x", f"url={url}", "upgrade", "head").returncode == 0
    checked = alembic("check", GPU_SHOPPER_DATABASE_URL=url)
    assert (checked.returncode, checked.stdout.strip()) == (0, "No new upgrade operations detected.")
    refused = alembic("-x", f"url={url}", "downgrade", "base")
    assert refused.returncode != 0
    assert refused.stdout.splitlines()[-1].startswith("FAILED: The ledger can't go back below revision 0044: ")
    lost = alembic("check")
    assert lost.returncode != 0
    assert "set GPU_SHOPPER_DATABASE_URL, or give -x url=sqlite+aiosqlite:///path/to/file.db" in lost.stdout


def test_the_steps_can_be_printed_for_a_database_administrator() -> None:
    printed = alembic("-x", "url=postgresql+asyncpg://u@h/d", "upgrade", "head", "--sql").stdout
    for guard in GUARDS | TRUNCATE_GUARDS:
        assert f"CREATE TRIGGER {guard} " in printed


@pytest.mark.slow
def test_a_new_step_is_written_in_plain_types(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "old.db")
    alembic("-x", f"url={url}", "upgrade", "head")
    with sqlite3.connect(tmp_path / "old.db") as connection:
        for column in ("reason", "last_seen_at", "price_usd_h", "absent_at", "label"):
            connection.execute(f"ALTER TABLE orphans DROP COLUMN {column}")
    connection.close()
    shutil.copytree(ROOT / "migrations", tmp_path / "migrations")
    settings = (ROOT / "pyproject.toml").read_text().partition("[tool.alembic]\n")[2].partition("\n\n")[0]
    (tmp_path / "pyproject.toml").write_text(f"[tool.alembic]\n{settings}\n")
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
