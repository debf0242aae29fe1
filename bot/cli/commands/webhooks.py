"""`gpu-shopper webhooks`: create, list, test, rotate, replay and delete webhooks."""

from __future__ import annotations

from datetime import datetime
from operator import itemgetter
from typing import Annotated, Any

import typer

from bot.cli.access.api_client import spoken
from bot.cli.terminal.listing import ListColumns, listing
from bot.cli.terminal.options import Columns, Json, plain_id
from bot.cli.terminal.screen import group
from bot.cli.terminal.terminal_tables import show, show_once, show_result
from bot.cli.terminal.views import name_of, time_cell
from bot.rules.values.state_text import words_of
from bot.rules.webhooks.webhooks import Topic, topics_of
from ledger.kernel.states import NotificationState

#: As help shows them: the topics are names of the API.
TOPICS = ", ".join(f"`{topic}`" for topic in Topic)

app = group("Webhooks: create, list, test, rotate, log, replay, delete.")

Hook = Annotated[str, typer.Argument(help="The id of a webhook, as the list shows it.")]
WEBHOOKS: ListColumns[Any] = (
    ("webhook", itemgetter("id")),
    ("of", lambda one: one["actor_name"] or name_of(one["actor"])),
    ("address", itemgetter("url")),
    ("topics", lambda one: " ".join(sorted(topics_of(one["topics"])))),
    ("state", lambda one: f"off: {one['off_reason']}" if one["off_at"] else "on"),
)
LOG: ListColumns[Any] = (
    ("delivery", itemgetter("id")),
    ("message", itemgetter("kind")),
    ("state", lambda one: words_of(NotificationState, one["state"])),
    ("tries", lambda one: str(one["tries"])),
    ("last outcome", lambda one: one["attempts"][-1]["outcome"] if one["attempts"] else "-"),
    ("next", lambda one: time_cell(datetime.fromisoformat(one["due_at"])) if one["due_at"] else "-"),
)


@app.command()
def create(
    url: Annotated[str, typer.Argument(help="The address that receives the messages: https://example.com/hooks.")],
    topic: Annotated[list[str] | None, typer.Option(help=f"One of {TOPICS}; several times.")] = None,
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    as_json: Json = False,
) -> None:
    """Create a webhook and show its secret once."""
    made = spoken(lambda api: api.post("/webhooks", {"url": url, "topics": topic or [], "note": note}))
    show_once(made, "secret", as_json=as_json)


@app.command("list")
def list_(columns: Columns = "", as_json: Json = False) -> None:
    """List every webhook, without its secret."""
    found = spoken(lambda api: api.get("/webhooks"))
    show(found if as_json else listing("There are no webhooks.", WEBHOOKS, found), columns)


@app.command()
def delete(webhook: Hook, as_json: Json = False) -> None:
    """Delete a webhook; it receives nothing any more."""
    show_result(spoken(lambda api: api.delete(f"{_path(webhook)}")), as_json=as_json)


@app.command("test")
def try_(webhook: Hook, as_json: Json = False) -> None:
    """Send a test message."""
    show_result(spoken(lambda api: api.post(f"{_path(webhook)}/test", {})), as_json=as_json)


@app.command()
def rotate(webhook: Hook, as_json: Json = False) -> None:
    """Rotate the secret and show it once; the old one also signs for a day."""
    show_once(spoken(lambda api: api.post(f"{_path(webhook)}/rotate", {})), "secret", as_json=as_json)


@app.command()
def log(
    webhook: Hook,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that failed finally.")] = False,
    most: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 50,
    columns: Columns = "",
    as_json: Json = False,
) -> None:
    """Show what was sent, and the result of each message."""
    found = spoken(lambda api: api.get(f"{_path(webhook)}/deliveries", failed=failed, limit=most))
    show(found if as_json else listing("Nothing was sent yet.", LOG, found["items"]), columns)


@app.command()
def replay(
    webhook: Hook,
    delivery: Annotated[str, typer.Option(help="One message of the log; without it, all that failed finally.")] = "",
    as_json: Json = False,
) -> None:
    """Send messages again; a disabled webhook is enabled again."""
    body = {"delivery_id": plain_id(delivery, "deliveries")} if delivery else {}
    show_result(spoken(lambda api: api.post(f"{_path(webhook)}/replay", body)), as_json=as_json)


def _path(webhook: str) -> str:
    return f"/webhooks/{plain_id(webhook, 'webhooks')}"
