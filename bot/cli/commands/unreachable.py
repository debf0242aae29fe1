"""`gpu-shopper unreachable`: list open instances in accounts without a key, and write them off."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import typer

from bot import logs
from bot.cli.access.api_client import ApiClient, spoken
from bot.cli.commands.instances import Why
from bot.cli.commands.requests import Json
from bot.cli.terminal.screen import agreed, at_terminal, fail, group
from bot.cli.terminal.terminal_tables import show, show_result
from bot.rules.values.phrases import plural, rate
from bot.rules.values.text_table import TextReport

app = group("Open instances in accounts without a key: list, gone.")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List what nothing here can see or terminate, with its account."""
    found = spoken(lambda api: api.get("/unreachable"))
    lines = tuple(map(_line, found)) or ("Everything that is open can be looked at.",)
    show(found if as_json else TextReport(sentences=lines))


@app.command()
def gone(
    named: Annotated[list[str], typer.Argument(help="Ids from the list, or accounts such as vast/5d41402abc4b.")],
    reason: Why = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the question; a program is never asked.")] = False,
    as_json: Json = False,
) -> None:
    """Write off instances that no longer exist. Refused while a cloud lists one of them or its agent checks in."""
    asks = at_terminal() and not (yes or as_json)
    show_result(spoken(lambda api: _gone(api, named, reason, asks=asks)), as_json=as_json)


async def _gone(api: ApiClient, named: list[str], reason: str, *, asks: bool) -> Any:
    found = await api.get("/unreachable")
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
    return await api.post("/unreachable/gone", {"ids": ids, "reason": reason})


def _line(one: Any) -> str:
    where = f"{one['cloud']}/{one['account']} {one['ref'] or '-'}  {rate(Decimal(one['price_usd_h']))}"
    since = one["since"].replace("T", " ")[:16]
    return logs.visible(f"{one['id']}  {one['state']:<11}  {where}  since {since} UTC  {one['owner'] or '-'}")
