"""`gpu-shopper secret`: store, list and delete the secrets that your jobs get. A value is never an argument."""

from __future__ import annotations

import sys
from typing import Annotated
from urllib.parse import quote

import typer

from bot.api.schemas.secrets import SecretOut
from bot.cli.access.api_client import spoken
from bot.cli.terminal.listing import ListColumns, listing
from bot.cli.terminal.options import Columns, Json
from bot.cli.terminal.screen import fail, group, prompt
from bot.cli.terminal.terminal_tables import show, show_result
from bot.cli.terminal.views import time_cell
from bot.rules.values.secret_names import LONGEST_VALUE_BYTES, name_problem

app = group("Secrets that your jobs get as variables: set, list, delete.")

Name = Annotated[str, typer.Argument(help="The name of the variable, such as HF_TOKEN.")]


@app.command("set")
@app.command("add", hidden=True)
def set_(name: Name, as_json: Json = False) -> None:
    """Store a secret, or replace its value. It is read from standard input, or from a hidden prompt.

    A job that names it gets it: secrets=HF_TOKEN. Nobody can read it here again.
    """
    if wrong := name_problem(name):
        fail(wrong, 2)
    value = _value(name)
    show_result(spoken(lambda api: api.put(_path(name), {"value": value})), as_json=as_json)


def _value(name: str) -> str:
    """Return what was typed at a hidden prompt, or all of standard input without its last line break."""
    if sys.stdin.isatty():
        return prompt(f"Value of {name} (hidden)", hidden=True)
    read = sys.stdin.buffer.read(LONGEST_VALUE_BYTES + 3)
    try:
        return read.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        fail("The value is no text in UTF-8. Encode it, for example with base64.", 2)


@app.command("list")
def list_(columns: Columns = "", as_json: Json = False) -> None:
    """List the names of your secrets, without their values."""
    found = spoken(lambda api: api.get("/secrets"))
    cells: ListColumns[SecretOut] = (
        ("name", lambda one: one.name),
        ("stored", lambda one: time_cell(one.created_at)),
        ("last changed", lambda one: time_cell(one.updated_at)),
    )
    empty = "You have no secrets here. Store one: gpu-shopper secret set HF_TOKEN"
    show(found if as_json else listing(empty, cells, map(SecretOut.model_validate, found)), columns)


@app.command()
def delete(name: Name, as_json: Json = False) -> None:
    """Delete a secret. Machines that have it already keep it, so revoke it at its service, too."""
    show_result(spoken(lambda api: api.delete(_path(name))), as_json=as_json)


def _path(name: str) -> str:
    return f"/secrets/{quote(name, safe='')}"
