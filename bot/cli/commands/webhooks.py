"""`gpu-shopper webhooks`: addresses that are told what happens: create, list, test, rotate, log, replay, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bot import logs
from bot.cli.access.api_client import spoken
from bot.cli.commands.requests import Json, plain_id
from bot.cli.terminal.terminal_tables import show
from bot.rules.values.text_table import TextReport, TextTable
from bot.rules.webhooks.webhooks import Topic

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Addresses that are told what happens.")

Hook = Annotated[str, typer.Argument(help="The id of a webhook, as the list shows it.")]
HEAD = ("webhook", "of", "address", "topics", "state")
LOG = ("delivery", "message", "state", "tries", "last outcome", "next")


@app.command()
def create(
    url: Annotated[str, typer.Argument(help="Where to tell: https://example.com/hooks.")],
    topic: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(Topic)}; several times.")] = None,
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    as_json: Json = False,
) -> None:
    """Name an address and show its secret once."""
    made = spoken(lambda door: door.post("/webhooks", {"url": url, "topics": topic or [], "note": note}))
    _secret(made, as_json=as_json)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Show every webhook, without its secret."""
    found = spoken(lambda door: door.get("/webhooks"))
    rows = tuple(
        (
            one["id"],
            one["actor"],
            one["url"],
            " ".join(one["topics"]),
            f"off: {one['off_reason']}" if one["off_at"] else "on",
        )
        for one in found
    )
    told = (
        TextReport(tables=(TextTable(head=HEAD, rows=rows),))
        if rows
        else TextReport(sentences=("There are no webhooks.",))
    )
    show(found if as_json else told)


@app.command()
def delete(webhook: Hook, as_json: Json = False) -> None:
    """Tell an address nothing any more."""
    _said(spoken(lambda door: door.delete(f"/webhooks/{plain_id(webhook)}")), as_json=as_json)


@app.command("test")
def try_(webhook: Hook, as_json: Json = False) -> None:
    """Send a test message."""
    _said(spoken(lambda door: door.post(f"/webhooks/{plain_id(webhook)}/test", {})), as_json=as_json)


@app.command()
def rotate(webhook: Hook, as_json: Json = False) -> None:
    """Make a new secret and show it once; the old one signs beside it for a day."""
    _secret(spoken(lambda door: door.post(f"/webhooks/{plain_id(webhook)}/rotate", {})), as_json=as_json)


@app.command()
def log(
    webhook: Hook,
    failed: Annotated[bool, typer.Option("--failed", help="Only what was given up.")] = False,
    most: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """Show what was sent, and what came of it."""
    found = spoken(lambda door: door.get(f"/webhooks/{plain_id(webhook)}/deliveries", failed=failed, limit=most))
    rows = tuple(
        (
            one["id"],
            one["kind"],
            one["state"],
            str(one["tries"]),
            one["attempts"][-1]["outcome"] if one["attempts"] else "-",
            one["due_at"] or "-",
        )
        for one in found["items"]
    )
    told = (
        TextReport(tables=(TextTable(head=LOG, rows=rows),))
        if rows
        else TextReport(sentences=("Nothing was sent yet.",))
    )
    show(found if as_json else told)


@app.command()
def replay(
    webhook: Hook,
    delivery: Annotated[str, typer.Option(help="One message of the log; without it, all that were given up.")] = "",
    as_json: Json = False,
) -> None:
    """Send messages again; a webhook that was switched off is on again."""
    body = {"delivery_id": plain_id(delivery)} if delivery else {}
    _said(spoken(lambda door: door.post(f"/webhooks/{plain_id(webhook)}/replay", body)), as_json=as_json)


def _secret(made: Any, *, as_json: bool) -> None:
    if as_json:
        show(made)
    else:
        typer.echo(logs.visible(made["sentence"]), err=True)
        typer.echo(made["secret"])


def _said(done: Any, *, as_json: bool) -> None:
    show(done if as_json else TextReport(sentences=(done["sentence"],)))
