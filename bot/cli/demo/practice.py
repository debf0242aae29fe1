"""`gpu-shopper practice`: serve the stand-in for Slack alone, for tests that run the bot in its own process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import typer

from bot import logs
from bot.cli.access.settings import console
from bot.clock import TravelClock
from bot.main import stop_on_signals
from bot.practice.app import Practice
from bot.practice.workspace import Workspace


def practice(
    signing_secret: str = typer.Option(..., envvar="SLACK_SIGNING_SECRET", help="As the bot has it."),
    bot_token: str = typer.Option(..., envvar="SLACK_BOT_TOKEN", help="As the bot has it."),
    app_token: str = typer.Option("", envvar="SLACK_APP_TOKEN", help="As the bot has it, for Socket Mode."),
    request_url: str = typer.Option("", help="Where the bot receives requests; empty for Socket Mode."),
    port: int = typer.Option(0, help="Port on 127.0.0.1; 0 takes a free one."),
    manifest: str = typer.Option("manifest.yml", help="The app's manifest."),
) -> None:
    """Serve the practice workspace until Ctrl-C; the first line printed is its address."""
    logs.configure(level="warning", json=False)
    workspace = Workspace(
        TravelClock(),
        signing_secret=signing_secret,
        bot_token=bot_token,
        app_token=app_token,
        request_url=request_url or None,
        manifest=Path(manifest),
    )
    asyncio.run(serve_until(None, Practice(workspace), port))


async def serve_until(stopping: asyncio.Event | None, practice_app: Practice, port: int) -> None:
    """Serve the workspace until the event is set; without one, until Ctrl-C."""
    stopping = stopping or stop_on_signals()
    async with practice_app.serve(port) as url:
        console().print(url)
        await stopping.wait()
