"""`gpu-shopper serve`: run the bot in one process."""

from __future__ import annotations

import asyncio

import typer

from bot.cli.access.settings import BAD_SETTINGS, explained, fail, private_umask, settings
from bot.clock import SystemClock
from bot.main import CannotServe
from bot.main import serve as run
from migrations.run import SchemaError


def serve(
    no_migrate: bool = typer.Option(
        False, "--no-migrate", help="Leave the schema alone; refuse to start on an old one."
    ),
    allow_shared: bool = typer.Option(
        False, "--allow-shared", help="Let several serve processes work on one SQLite file. For tests."
    ),
) -> None:
    """Run Slack, the REST API, health and the ticker until SIGTERM or Ctrl-C."""
    private_umask()
    found = settings()
    with explained():
        try:
            asyncio.run(run(found, SystemClock(), migrate=not no_migrate, allow_shared=allow_shared))
        except (CannotServe, SchemaError) as error:
            fail(str(error), BAD_SETTINGS)
