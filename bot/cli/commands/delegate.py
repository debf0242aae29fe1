"""`gpu-shopper delegate`: let somebody approve in your place."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.access.api_client import spoken
from bot.cli.commands.requests import Json
from bot.cli.terminal.screen import group
from bot.cli.terminal.terminal_tables import show, show_result, table_or

app = group("Let one person approve in your place: set, list, off.")


@app.command("set")
def set_(
    person: Annotated[str, typer.Argument(help="A Slack id such as U012AB3CD, or operator:ada.")],
    until: Annotated[str, typer.Argument(help="The last day in UTC, such as 2026-12-01.")],
    as_json: Json = False,
) -> None:
    """Let one person approve in your place; this replaces your last delegation. They cannot pass it on."""
    show_result(spoken(lambda api: api.put("/delegations", {"delegate": person, "until": until})), as_json=as_json)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List who approves for whom now."""
    found = spoken(lambda api: api.get("/delegations"))
    rows = [(one["delegator"], one["delegate"], one["until"]) for one in found]
    report = table_or("Nobody decides for anybody else now.", ("in the place of", "decides", "until"), rows)
    show(found if as_json else report)


@app.command()
def off(as_json: Json = False) -> None:
    """End your delegation: from now on nobody approves in your place."""
    show_result(spoken(lambda api: api.delete("/delegations")), as_json=as_json)
