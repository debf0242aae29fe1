"""`gpu-shopper unreachable`: what is open in accounts that no key opens, and the word that it is gone."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import typer

from bot import logs
from bot.cli.access.api_client import ApiClient, spoken
from bot.cli.commands.instances import Why
from bot.cli.commands.requests import Json
from bot.cli.terminal.screen import agreed, at_terminal, fail
from bot.cli.terminal.terminal_tables import show
from bot.rules.values.phrases import plural, rate
from bot.rules.values.text_table import TextReport

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Open instances of accounts whose key is not set up."
)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Show what nothing here can look at or end, with the account that it is in."""
    found = spoken(lambda door: door.get("/unreachable"))
    lines = tuple(map(_line, found)) or ("Everything that is open can be looked at.",)
    show(found if as_json else TextReport(sentences=lines))


@app.command()
def gone(
    named: Annotated[list[str], typer.Argument(help="Ids from the list, or accounts such as vast/5d41402abc4b.")],
    reason: Why = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first; nothing is asked of a program.")] = False,
    as_json: Json = False,
) -> None:
    """Say that these no longer exist. Refused while a cloud shows one of them or its agent reports."""
    asks = at_terminal() and not (yes or as_json)
    done = spoken(lambda door: _gone(door, named, reason, asks=asks))
    show(done if as_json else TextReport(sentences=(done["sentence"],)))


async def _gone(door: ApiClient, named: list[str], reason: str, *, asks: bool) -> Any:
    found = await door.get("/unreachable")
    ids = []
    for text in named:
        there = [one["id"] for one in found if text in (one["id"], f"{one['cloud']}/{one['account']}")]
        if not there and "/" in text:
            fail(f"Nothing is open in {logs.visible(text[:60])}; gpu-shopper unreachable list shows where it is.")
        ids += there or [text]
    if asks and reason.strip():
        for one in found:
            if one["id"] in ids:
                typer.echo(_line(one))
        what = plural(len(set(ids)), "instance")
        if not agreed(f"Close {what} as gone? Whatever still runs there goes on and costs, and nothing here sees it."):
            typer.echo("Nothing was closed.")
            raise typer.Exit(1)
    return await door.post("/unreachable/gone", {"ids": ids, "reason": reason})


def _line(one: Any) -> str:
    where = f"{one['cloud']}/{one['account']} {one['ref'] or '-'}  {rate(Decimal(one['price_usd_h']))}"
    since = one["since"].replace("T", " ")[:16]
    return logs.visible(f"{one['id']}  {one['state']:<11}  {where}  since {since} UTC  {one['owner'] or '-'}")
