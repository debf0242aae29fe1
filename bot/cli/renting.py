"""`gpu-shopper sessions`, `session` and `shutdown`: what runs, how to connect, and its end."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.api.schemas import Page, SessionOut
from bot.cli.asking import Json, Named, plain_id
from bot.cli.door import spoken
from bot.cli.telling import show
from bot.cli.views import told_session, told_sessions
from bot.services.told import Told

sessions_app, session_app, shutdown_app = (typer.Typer(add_completion=False) for _ in range(3))


@sessions_app.command()
def sessions(
    everything: Annotated[bool, typer.Option("--all", help="Those that are over, too.")] = False,
    most: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List sessions, the newest first."""
    found = spoken(lambda door: door.get("/sessions", live="false" if everything else "true", limit=most))
    show(found if as_json else told_sessions(Page[SessionOut].model_validate(found).items))


@session_app.command()
def session(session: Named, as_json: Json = False) -> None:
    """Show one session, by its id or by its request's, and how to connect."""
    found = spoken(lambda door: door.get(f"/sessions/{plain_id(session)}"))
    show(found if as_json else told_session(SessionOut.model_validate(found)))


@shutdown_app.command()
def shutdown(session: Named, as_json: Json = False) -> None:
    """End a session now; it is confirmed when its cloud no longer lists it."""
    done = spoken(lambda door: door.delete(f"/sessions/{plain_id(session)}"))
    show(done if as_json else Told(sentences=(done["sentence"],)))
