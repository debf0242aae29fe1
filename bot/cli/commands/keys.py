"""`gpu-shopper keys` and `ssh-key`: API keys of programs and people, and the public SSH keys that your machines get.

Only `keys create` makes keys of people.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from bot.api.schemas.keys import ApiKeyOut, SshKeyOut, SshKeyRow
from bot.cli.access.api_client import spoken
from bot.cli.access.job_file import text_of
from bot.cli.terminal.listing import ListColumns, listing
from bot.cli.terminal.options import Columns, Json, plain_id
from bot.cli.terminal.screen import fail, group
from bot.cli.terminal.terminal_tables import show, show_once, show_result
from bot.cli.terminal.views import name_of, time_cell
from bot.rules.access.scopes import KEY_DAYS, MEANING

app = group("API keys: create, list, revoke.")

KEYS: ListColumns[ApiKeyOut] = (
    ("key", lambda one: one.id),
    ("of", lambda one: one.actor_name or name_of(one.actor)),
    ("owner", lambda one: one.owner_name or name_of(one.owner)),
    ("state", lambda one: one.state),
    ("expires", lambda one: time_cell(one.expires_at)),
    ("last used", lambda one: time_cell(one.last_used_at) if one.last_used_at else "never"),
    ("scopes", lambda one: " ".join(one.scopes)),
)
SSH_KEYS: ListColumns[SshKeyRow] = (
    ("fingerprint", lambda one: one.fingerprint),
    ("kind", lambda one: one.public_key.split()[0]),
    ("added", lambda one: time_cell(one.created_at)),
)


@app.command()
def create(
    name: Annotated[
        str, typer.Argument(help="A program such as atlas, an AI agent as agent:coder, or a person as operator:ada.")
    ],
    owner: Annotated[str, typer.Option(help="Who answers for a program: a Slack id or operator:ada.")] = "",
    scope: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(MEANING)}; several times.")] = None,
    days: Annotated[int, typer.Option(min=1, max=366, help="For how long it works.")] = KEY_DAYS,
    as_json: Json = False,
) -> None:
    """Create a key and show it once.

    A person's key may approve; a program's or an AI agent's never can. What an agent requests is never auto-approved.
    """
    body = {"name": name, "owner": owner, "scopes": scope or [], "days": days}
    made = spoken(lambda api: api.post("/keys", body))
    show_once(made, "token", as_json=as_json)


@app.command("list")
def list_(columns: Columns = "", as_json: Json = False) -> None:
    """List every key, without its secret."""
    found = spoken(lambda api: api.get("/keys"))
    keys = map(ApiKeyOut.model_validate, found)
    show(found if as_json else listing("There are no API keys.", KEYS, keys, extra=("scopes",)), columns)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The id of a key, as the list shows it.")], as_json: Json = False
) -> None:
    """Revoke a key at once."""
    show_result(
        spoken(lambda api: api.delete(f"/keys/{plain_id(key, 'keys')}")),
        as_json=as_json,
    )


ssh_app = group("Your public SSH keys: add, list, remove.")


@ssh_app.command()
def add(
    words: Annotated[
        list[str],
        typer.Argument(
            help="The public key file, such as ~/.ssh/id_ed25519.pub, or the key itself.", metavar="FILE|KEY"
        ),
    ],
    as_json: Json = False,
) -> None:
    """Register a public key, besides those that you have; machines that are created from now on accept it."""
    file = " ".join(words)  # A key may be pasted without quotes.
    pasted = file.startswith(("ssh-", "ecdsa-", "sk-")) and " " in file
    text = file if pasted else text_of(file)
    if "PRIVATE KEY" in text:
        fail(f"{file} is a private key; it was not sent. Name the file that ends in .pub.", 2)
    show_result(spoken(lambda api: api.put("/ssh-keys", {"public_key": text})), as_json=as_json)


@ssh_app.command("show", hidden=True)
@ssh_app.command("list")
def show_(columns: Columns = "", as_json: Json = False) -> None:
    """List your keys."""
    found = spoken(lambda api: api.get("/ssh-keys"))
    show(found if as_json else listing("", SSH_KEYS, SshKeyOut.model_validate(found).keys), columns)


@ssh_app.command()
def remove(
    fingerprint: Annotated[str, typer.Argument(help="Which key, as the list shows it, or how that begins.")] = "",
    as_json: Json = False,
) -> None:
    """Delete a key; machines that already have it keep it."""
    named = quote(fingerprint, safe="")
    path = f"/ssh-keys?fingerprint={named}" if named else "/ssh-keys"
    show_result(spoken(lambda api: api.delete(path)), as_json=as_json)
