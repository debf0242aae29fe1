"""`gpu-shopper ssh-key`: the public SSH key that your machines get."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.access.api_client import spoken
from bot.cli.commands.requests import Json
from bot.cli.terminal.screen import fail
from bot.cli.terminal.terminal_tables import show
from bot.rules.values.text_table import TextReport

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Your public SSH key: add, show, remove.")


@app.command()
def add(
    file: Annotated[str, typer.Argument(help="The public key file, such as ~/.ssh/id_ed25519.pub, or the key itself.")],
    as_json: Json = False,
) -> None:
    """Register or replace the key; machines that are created from now on accept it."""
    try:
        pasted = file.startswith(("ssh-", "ecdsa-", "sk-")) and " " in file
        text = file if pasted else Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file} cannot be read: {error}.", 2)
    if "PRIVATE KEY" in text:
        fail(f"{file} is a private key; it was not sent. Name the file that ends in .pub.", 2)
    _told(spoken(lambda door: door.put("/ssh-keys", {"public_key": text})), as_json=as_json)


@app.command("show")
def show_(as_json: Json = False) -> None:
    """Say which key is registered."""
    _told(spoken(lambda door: door.get("/ssh-keys")), as_json=as_json)


@app.command()
def remove(as_json: Json = False) -> None:
    """Forget the key; machines that have it keep it."""
    _told(spoken(lambda door: door.delete("/ssh-keys")), as_json=as_json)


def _told(done: Any, *, as_json: bool) -> None:
    show(done if as_json else TextReport(sentences=(done["sentence"],)))
