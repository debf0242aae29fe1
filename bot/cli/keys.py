"""`gpu-shopper keys`: the API keys of programs and people. Made here once, shown once, revoked at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Annotated, TypeVar

import typer
from rich.markup import escape
from rich.table import Table

from bot import logs
from bot.cli.shared import console, explained, fail, operator, private_umask, settings
from bot.clock import SystemClock
from bot.rules.labels import LabelKey
from bot.rules.scopes import KEY_DAYS, MEANING
from bot.services import consumers
from bot.services.commands import Reply
from bot.services.consumers import KeyView, NewKey
from bot.wiring import build_labels
from ledger.db import Database

app = typer.Typer(no_args_is_help=True, add_completion=False, help="API keys: create, list, revoke.")

Found = TypeVar("Found")
HEAD = ("key", "of", "answers for it", "state", "until", "last used", "scopes")


def _with_ledger(step: Callable[[Database, LabelKey], Awaitable[Found]]) -> Found:
    private_umask()

    async def within() -> Found:
        found = settings()
        db = Database(found.database)
        try:
            return await step(db, build_labels(found))
        finally:
            await db.close()

    with explained():
        return asyncio.run(within())


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="A program such as atlas, or a person as operator:ada.")],
    owner: Annotated[str, typer.Option(help="Who answers for a program: a Slack id or operator:ada.")] = "",
    scope: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(MEANING)}; several times.")] = None,
    days: Annotated[int, typer.Option(min=1, help="For how long it works.")] = KEY_DAYS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Make a key and show it once. A person's key may decide; a program's never does."""
    now = SystemClock().now()
    command = NewKey(name, owner, tuple(scope or ()), days)
    reply = _with_ledger(lambda db, labels: consumers.create(db, labels, command, operator(), now))
    shown(reply)
    if as_json:
        typer.echo(json.dumps({"sentence": reply.sentence, **reply.data}, default=str))
    else:
        typer.echo(reply.sentence, err=True)
        typer.echo(reply.data["token"])


@app.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Show every key, without its secret."""
    now = SystemClock().now()
    found = _with_ledger(lambda db, _: consumers.listing(db, now))
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], default=str, indent=2))
    elif found:
        console().print(_table(found))
    else:
        typer.echo("There are no API keys.")


@app.command()
def revoke(key: Annotated[str, typer.Argument(help="The id of a key, as the list shows it.")]) -> None:
    """End a key at once."""
    now = SystemClock().now()
    reply = _with_ledger(lambda db, _: consumers.revoke(db, key, operator(), now))
    shown(reply)
    typer.echo(reply.sentence)


def shown(reply: Reply) -> None:
    """End the program with the sentence of a refusal."""
    if not reply.ok:
        fail(reply.sentence, 2 if reply.code.startswith("bad_") else 1)


def _table(found: Sequence[KeyView]) -> Table:
    table = Table(*HEAD, box=None)
    for one in found:
        used = f"{one.last_used_at:%Y-%m-%d %H:%M}" if one.last_used_at else "never"
        cells = (one.id, one.actor, one.owner, one.state, f"{one.expires_at:%Y-%m-%d}", used, " ".join(one.scopes))
        table.add_row(*(escape(logs.visible(cell)) for cell in cells))
    return table
