"""The baseline makes the schema that the steps before it made, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection

from ledger.db import Database
from migrations.baseline import record_tables, rental_tables, triggers
from tests.support.databases import PostgresTemplate, sqlite_url
from tests.support.schema import described


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


def by_baseline(connection: Connection) -> list[str]:
    """The schema that the baseline makes in an empty database."""
    with Operations.context(MigrationContext.configure(connection)):
        rental_tables.create()
        record_tables.create()
        triggers.create()
    return described(connection)


async def migrated(db: Database) -> list[str]:
    """The schema of a database that every step was applied to."""
    async with db.writer.connect() as connection:
        return await connection.run_sync(described)


async def test_the_baseline_makes_what_the_steps_made(
    empty_db: Database, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with empty_db.writer.begin() as connection:
        made = await connection.run_sync(by_baseline)
    if empty_db.dialect == "sqlite":
        steps = Database(sqlite_url(request.getfixturevalue("sqlite_template")))
        # SQLite looks at no length, so the step that made these three columns wider left their declaration as it was.
        before = [line.replace("column ref VARCHAR(64)", "column ref VARCHAR(256)") for line in await migrated(steps)]
        await steps.close()
    else:
        template: PostgresTemplate = request.getfixturevalue("pg_template")
        async with template.clone() as url:
            steps = Database(url)
            before = await migrated(steps)
            await steps.close()
    assert made == before
    kinds = {line.split(" ", 2)[1] for line in made}
    assert kinds >= {"column", "constraint", "index", "trigger"}
