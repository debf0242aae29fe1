"""`gpu-shopper db`: upgrade, downgrade and check the schema of the ledger."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import typer

from bot.cli.access.settings import BAD_SETTINGS, explained, fail, private_umask, settings
from bot.cli.terminal.screen import group
from ledger.engine.db import Database
from migrations import run as schema

app = group("The ledger's schema.")

Step = Callable[[Database], Awaitable[str]]


def _with_ledger(step: Step, url: str | None = None) -> None:
    private_umask()

    async def within() -> str:
        db = Database(url or settings().database)
        try:
            return await step(db)
        finally:
            await db.close()

    with explained():
        try:
            typer.echo(asyncio.run(within()))
        except schema.SchemaError as error:
            fail(str(error))


def _existing() -> None:
    """End the program where there is no ledger yet: a command that only reads creates none."""
    with explained():
        file = settings().sqlite_file
    if file is not None and not file.exists():
        fail(
            f"{file} is not there yet. `gpu-shopper db upgrade` or the first `gpu-shopper serve` makes it.",
            BAD_SETTINGS,
        )


@app.command()
def upgrade(revision: str = typer.Argument("head", help="A revision, or head for the newest.")) -> None:
    """Upgrade the schema to a revision."""

    async def step(db: Database) -> str:
        await schema.upgrade(db, revision)
        return f"The ledger is at {await schema.current(db)}."

    _with_ledger(step)


@app.command(context_settings={"ignore_unknown_options": True})  # -1 is a revision and no option.
def downgrade(revision: str = typer.Argument(help="A revision, or -1 for one step back.")) -> None:
    """Downgrade the schema to a revision, at most to the first. Data in the dropped tables is lost."""

    async def step(db: Database) -> str:
        await schema.downgrade(db, revision)
        return f"The ledger is at {await schema.current(db) or 'base: it is empty'}."

    _with_ledger(step)


@app.command()
def current(as_json: bool = typer.Option(False, "--json", help="Print one JSON document.")) -> None:
    """Print the revision of the ledger, the newest that this program knows, and the oldest that can work on it."""

    async def step(db: Database) -> str:
        at, readable_from = await schema.state(db)
        if as_json:
            return json.dumps({"revision": at, "newest": schema.newest(), "readable_from": readable_from or None})
        oldest = f", readable from {readable_from} on" if readable_from else ""
        return f"{at or 'base'} (newest: {schema.newest()}{oldest})"

    _existing()
    _with_ledger(step)


@app.command()
def check(
    fresh: bool = typer.Option(
        False, "--fresh", help="Check a new, empty SQLite file instead of the configured ledger."
    ),
) -> None:
    """Fail unless the tables are exactly as in the models."""

    async def step(db: Database) -> str:
        if fresh:
            await schema.upgrade(db)
        await schema.check(db)
        return "The tables and the models agree."

    if not fresh:
        _existing()
        _with_ledger(step)
        return
    with tempfile.TemporaryDirectory() as folder:
        _with_ledger(step, f"sqlite+aiosqlite:///{Path(folder) / 'check.db'}")
