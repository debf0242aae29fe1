"""`gpu-shopper ssh-key`: add, show and remove the public SSH key that your machines get."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.access.api_client import spoken
from bot.cli.access.job_file import text_of
from bot.cli.commands.requests import Json
from bot.cli.terminal.screen import fail, group
from bot.cli.terminal.terminal_tables import show_result

app = group("Your public SSH key: add, show, remove.")


@app.command()
def add(
    file: Annotated[str, typer.Argument(help="The public key file, such as ~/.ssh/id_ed25519.pub, or the key itself.")],
    as_json: Json = False,
) -> None:
    """Register or replace your public key; machines that are created from now on accept it."""
    pasted = file.startswith(("ssh-", "ecdsa-", "sk-")) and " " in file
    text = file if pasted else text_of(file)
    if "PRIVATE KEY" in text:
        fail(f"{file} is a private key; it was not sent. Name the file that ends in .pub.", 2)
    show_result(spoken(lambda api: api.put("/ssh-keys", {"public_key": text})), as_json=as_json)


@app.command("show")
def show_(as_json: Json = False) -> None:
    """Show which key is registered."""
    show_result(spoken(lambda api: api.get("/ssh-keys")), as_json=as_json)


@app.command()
def remove(as_json: Json = False) -> None:
    """Delete your key; machines that already have it keep it."""
    show_result(spoken(lambda api: api.delete("/ssh-keys")), as_json=as_json)
