"""`gpu-shopper delegate`: who decides in your place, and until when."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.access.api_client import spoken
from bot.cli.commands.requests import Json
from bot.cli.terminal.terminal_tables import show
from bot.rules.values.text_table import TextReport, TextTable

app = typer.Typer(add_completion=False, help="Who decides in your place, and until when.", no_args_is_help=True)


@app.command("set")
def set_(
    person: Annotated[str, typer.Argument(help="A Slack id such as U012AB3CD, or operator:ada.")],
    until: Annotated[str, typer.Argument(help="The last day in UTC, such as 2026-12-01.")],
    as_json: Json = False,
) -> None:
    """Let one person decide in your place, instead of whoever did. They cannot pass it on."""
    done = spoken(lambda door: door.put("/delegations", {"delegate": person, "until": until}))
    show(done if as_json else TextReport(sentences=(done["sentence"],)))


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Who decides for whom now."""
    found = spoken(lambda door: door.get("/delegations"))
    rows = tuple((one["delegator"], one["delegate"], one["until"]) for one in found)
    table = (TextTable(head=("in the place of", "decides", "until"), rows=rows),) if rows else ()
    sentences = () if rows else ("Nobody decides for anybody else now.",)
    show(found if as_json else TextReport(tables=table, sentences=sentences))


@app.command()
def off(as_json: Json = False) -> None:
    """Take it back: from now on nobody decides in your place."""
    done = spoken(lambda door: door.delete("/delegations"))
    show(done if as_json else TextReport(sentences=(done["sentence"],)))
