"""`gpu-shopper strays`: instances of ours without a row of their own, and an operator's word on those that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from bot.cli.shared import explained, fail, operator, private_umask, settings
from bot.clock import SystemClock
from bot.services import recovery
from ledger.db import Database
from ledger.lookups import every_stray

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Instances of ours without a row: list, condemn.")

Found = TypeVar("Found")


def with_ledger(step: Callable[[Database], Awaitable[Found]]) -> Found:
    """What a step makes of the configured ledger, which is closed afterwards."""
    private_umask()

    async def within() -> Found:
        db = Database(settings().database)
        try:
            return await step(db)
        finally:
            await db.close()

    with explained():
        return asyncio.run(within())


@app.command("list")
def list_() -> None:
    """Show every stray, those that wait for an operator first."""

    async def step(db: Database) -> list[str]:
        async with db.read() as tx:
            return [
                f"{stray.id}  {stray.state:<11}  {stray.cloud} {stray.ref}  ${stray.price_usd_h}/h  "
                f"first seen {stray.first_seen_at:%Y-%m-%d %H:%M} UTC  {stray.reason}"
                for stray in await every_stray(tx)
            ]

    typer.echo("\n".join(with_ledger(step) or ["There are no strays."]))


@app.command()
def condemn(
    stray: str = typer.Argument(help="The id of a stray that waits for an operator."),
    reason: str = typer.Option("", help="Why, for the journal."),
) -> None:
    """Say that a waiting instance is to end. Recovery is over when none waits any more."""
    reply = with_ledger(lambda db: recovery.condemn(db, stray, operator(), reason, SystemClock().now()))
    if not reply.ok:
        fail(reply.sentence)
    typer.echo(reply.sentence)
