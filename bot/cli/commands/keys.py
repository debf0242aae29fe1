"""`gpu-shopper keys`: the API keys of programs and people. Shown once, revoked at once; those of people only here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from bot import logs
from bot.api.schemas.keys import ApiKeyOut
from bot.cli.access.api_client import spoken
from bot.cli.commands.requests import Json, plain_id
from bot.cli.terminal.terminal_tables import show
from bot.rules.access.scopes import KEY_DAYS, MEANING
from bot.rules.values.text_table import TextReport, TextTable

app = typer.Typer(no_args_is_help=True, add_completion=False, help="API keys: create, list, revoke.")

HEAD = ("key", "of", "answers for it", "state", "until", "last used", "scopes")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="A program such as atlas, or a person as operator:ada.")],
    owner: Annotated[str, typer.Option(help="Who answers for a program: a Slack id or operator:ada.")] = "",
    scope: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(MEANING)}; several times.")] = None,
    days: Annotated[int, typer.Option(min=1, max=366, help="For how long it works.")] = KEY_DAYS,
    as_json: Json = False,
) -> None:
    """Make a key and show it once. A person's key may decide; a program's never does."""
    body = {"name": name, "owner": owner, "scopes": scope or [], "days": days}
    made = spoken(lambda door: door.post("/keys", body))
    if as_json:
        show(made)
    else:
        typer.echo(logs.visible(made["sentence"]), err=True)
        typer.echo(made["token"])


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Show every key, without its secret."""
    found = spoken(lambda door: door.get("/keys"))
    show(found if as_json else _told([ApiKeyOut.model_validate(one) for one in found]))


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The id of a key, as the list shows it.")], as_json: Json = False
) -> None:
    """End a key at once."""
    done = spoken(lambda door: door.delete(f"/keys/{plain_id(key)}"))
    show(done if as_json else TextReport(sentences=(done["sentence"],)))


def _told(found: Sequence[ApiKeyOut]) -> TextReport:
    if not found:
        return TextReport(sentences=("There are no API keys.",))
    rows = []
    for one in found:
        used = f"{one.last_used_at:%Y-%m-%d %H:%M}" if one.last_used_at else "never"
        until = f"{one.expires_at:%Y-%m-%d}"
        rows.append((one.id, one.actor, one.owner, one.state, until, used, " ".join(one.scopes)))
    return TextReport(tables=(TextTable(head=HEAD, rows=tuple(rows)),))
