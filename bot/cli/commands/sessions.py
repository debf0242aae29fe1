"""`gpu-shopper sessions`: what runs."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.api.schemas.base import Page
from bot.api.schemas.sessions import SessionOut
from bot.cli.access.api_client import spoken
from bot.cli.commands.requests import Json
from bot.cli.terminal.terminal_tables import show
from bot.cli.terminal.views import session_list

app = typer.Typer(add_completion=False)


@app.command()
def sessions(
    everything: Annotated[bool, typer.Option("--all", help="Those that are over, too.")] = False,
    most: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List sessions, the newest first."""
    found = spoken(lambda door: door.get("/sessions", live="false" if everything else "true", limit=most))
    show(found if as_json else session_list(Page[SessionOut].model_validate(found).items))
