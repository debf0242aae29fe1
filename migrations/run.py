"""Take the schema steps for the application, without a command line or an ini file, as an installed wheel must.

Most starts find the newest schema: alembic, which loads slowly, is imported only when there is a step to take.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import inspect, text

from ledger.engine.db import Database

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

FOLDER = Path(__file__).parent
_NAMES = re.compile(r'^(revision|down_revision) = "(\w+)"$', re.MULTILINE)
_AT = "alembic_version"
#: A commit with the steps before the baseline: it upgrades a ledger from any of them to the baseline.
WITH_OLDER_STEPS = "f8386fd"


class SchemaError(RuntimeError):
    """Say that the database's schema is not the one that was asked for; the message says what to do."""


class SchemaState(NamedTuple):
    """The revision of a ledger, and which revision's code is the oldest that can work on it; "" where it says none."""

    revision: str | None
    readable_from: str = ""


async def upgrade(db: Database, revision: str = "head") -> None:
    """Bring the schema to `revision`, in one transaction. Replicas that start together do it one after the other.

    A ledger of a later revision that this program can work on stays as it is.
    """
    if revision == "head" and is_usable(await state(db)):
        return
    await _run(db, lambda command, config: command.upgrade(config, revision))


async def downgrade(db: Database, revision: str) -> None:
    """Take the schema back to `revision`, at most to the first: a name, or `-1` for one step."""
    await _run(db, lambda command, config: command.downgrade(config, revision))


async def current(db: Database) -> str | None:
    """Return the revision that the database is at; None when it is empty."""
    return (await state(db)).revision


async def state(db: Database) -> SchemaState:
    """Return the revision of the ledger, and from which revision on code can work on it."""
    async with db.writer.connect() as connection:
        return await connection.run_sync(state_of)


def state_of(connection: Connection) -> SchemaState:
    """Return the same of the database behind a connection."""
    if not inspect(connection).has_table(_AT):
        return SchemaState(None)
    # Ledgers of before have no second column.
    row = connection.execute(text(f"SELECT * FROM {_AT}")).mappings().first()  # noqa: S608 # Our own constant.
    return SchemaState(None) if row is None else SchemaState(row["version_num"], row.get("readable_from") or "")


def is_usable(at: SchemaState) -> bool:
    """Whether this program works on such a ledger: at its newest revision, or at a later one that says so.

    The ledger says it because a program can't know what later steps do.
    """
    if at.revision is None or at.revision in _steps():
        return at.revision == newest()
    return bool(at.readable_from) and at.readable_from <= newest() < at.revision


def refusal(at: str | None, readable_from: str = "") -> str | None:
    """Say why this program can't upgrade a ledger at a revision, and what to do; None when it can."""
    steps = _steps()
    if at is None or at in steps:
        return None
    first = next(revision for revision, before in steps.items() if before is None)
    if at < first:
        return (
            f"The ledger is at revision {at}, and this program upgrades ledgers from revision {first} on. "
            f"Check out commit {WITH_OLDER_STEPS} and run gpu-shopper db upgrade there; then this version opens it. "
            "Or set GPU_SHOPPER_DATABASE_URL to a new database."
        )
    install = "Run the version of GPU Shopper that upgraded the ledger."
    if readable_from:
        install = f"Install a version of GPU Shopper that knows revision {readable_from}."
    return f"The ledger is at revision {at}, and this program knows revisions up to {newest()}. {install}"


async def require_newest(db: Database) -> None:
    """Raise `SchemaError` unless the database is at the newest revision, or at a later one that is usable."""
    there = await state(db)
    at = there.revision
    if not is_usable(there):
        behind = f"The ledger is at revision {at}, and this program needs {newest()}. Run `gpu-shopper db upgrade`."
        if at is None:
            behind = "There is no ledger here yet. Run `gpu-shopper db upgrade` to make one."
        raise SchemaError(refusal(*there) or behind)


async def check(db: Database) -> None:
    """Raise `SchemaError` unless the database is at the newest revision and has exactly the tables of the models."""
    await _run(db, lambda command, config: command.check(config))


def newest() -> str:
    """Return the newest revision that this code knows: the one that no other step comes after."""
    steps = _steps()
    heads = sorted(set(steps) - set(steps.values()))
    if len(heads) != 1:
        raise SchemaError(f"the steps have {len(heads)} ends and not one: {', '.join(heads)}")
    return heads[0]


def _steps() -> dict[str, str | None]:
    """List every revision that this code knows, and the one before it."""
    files = (FOLDER / "versions").rglob("*_*.py")
    found = [dict(_NAMES.findall(file.read_text(encoding="utf-8"))) for file in files]
    return {one["revision"]: one.get("down_revision") for one in found if "revision" in one}


async def _run(db: Database, action: Callable[[Any, Config], None]) -> None:
    from alembic import command  # noqa: PLC0415 # Heavy, and only needed where there is a step to take.
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import AutogenerateDiffsDetected, CommandError  # noqa: PLC0415

    def within(connection: Connection) -> None:
        config = Config(stdout=io.StringIO())  # What a caller prints is the caller's choice.
        config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
        config.set_main_option("recursive_version_locations", "true")
        config.attributes["connection"] = connection
        action(command, config)

    try:
        async with db.writer.begin() as connection:
            await connection.run_sync(within)
    except AutogenerateDiffsDetected as error:
        raise SchemaError(f"the tables and the models disagree: {error}") from error
    except CommandError as error:
        raise SchemaError(
            f"The schema step failed: {error}. This program knows revisions up to {newest()}; "
            "run gpu-shopper db upgrade."
        ) from error
