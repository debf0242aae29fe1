"""Run alembic on the connection that the application hands over, or on one of its own for the command line.

`alembic -x url=sqlite+aiosqlite:///file.db upgrade head`, or with GPU_SHOPPER_DATABASE_URL in the environment.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection, String

from ledger.engine.db import Database
from ledger.models import Base
from migrations.run import SchemaError, refusal, state_of
from migrations.spelling import plain_type

URL_VARIABLE = "GPU_SHOPPER_DATABASE_URL"
#: "gpu-shop" as a number: replicas that start together upgrade one after the other.
LOCK = 0x6770752D73686F70


class NoDatabaseUrl(CommandError):
    """Say that the command line did not name a database."""


class MigrationRefused(CommandError):
    """Carry a `SchemaError` to alembic's command line, which prints its message."""


def differs(migration: Any, _column: Any, _there: Any, inspected: Any, wanted: Any) -> bool | None:
    """Whether a column has another type than its model; None leaves it to alembic.

    SQLite checks no length and cannot change one, so texts of other lengths are the same there.
    """
    texts = isinstance(inspected, String) and getattr(wanted, "impl", wanted).__class__ is String
    return False if migration.dialect.name == "sqlite" and texts else None


def migrate(connection: Connection) -> None:
    """Run the steps in the connection's transaction: all of them are kept, or none."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
    if refused := refusal(*state_of(connection)):
        raise SchemaError(refused)
    # Batch mode stays off: it copies the table and loses its triggers.
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        transactional_ddl=True,
        render_as_batch=False,
        render_item=plain_type,
        compare_type=differs,
    )
    with context.begin_transaction():
        context.run_migrations()


async def migrate_by_url(url: str) -> None:
    """Open the database as the application does, and run the steps in one transaction."""
    db = Database(url)
    try:
        async with db.writer.begin() as connection:
            await connection.run_sync(migrate)
    except SchemaError as error:
        raise MigrationRefused(str(error)) from error
    finally:
        await db.close()


def command_line_url() -> str:
    """Return the URL after `-x url=`, or the one in the environment; `NoDatabaseUrl` when there is neither."""
    url = context.get_x_argument(as_dictionary=True).get("url") or os.environ.get(URL_VARIABLE)
    if not url:
        raise NoDatabaseUrl(
            f"say which database: set {URL_VARIABLE}, or give -x url=sqlite+aiosqlite:///path/to/file.db"
        )
    return url


if context.is_offline_mode():
    context.configure(url=command_line_url(), target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif "connection" in context.config.attributes:
    migrate(context.config.attributes["connection"])
else:
    asyncio.run(migrate_by_url(command_line_url()))
