"""`gpu-shopper config`: store credentials in `.env`, which only its owner can read, or in the keyring.

Values are never shown.
"""

from __future__ import annotations

import difflib
import io
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer
from dotenv import dotenv_values
from dotenv.parser import parse_stream

from bot import vault
from bot.cli.access.api_client import KEY, URL
from bot.cli.terminal.listing import ListColumns, listing
from bot.cli.terminal.options import Columns, Json
from bot.cli.terminal.screen import BAD_SETTINGS, fail, group, prompt
from bot.cli.terminal.terminal_tables import show
from providers.registry import REGISTRY

FILE = Path(".env")
#: Other names that people type, where the cloud itself spells its name differently.
ALIASES = {"vastai-key": "vast-key", "tensordock-key": "tensordock-api-token"}
OTHERS = ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET", URL, KEY)

app = group("Credentials in .env: set, unset, list.")

Name = Annotated[str, typer.Argument(help="Which one, such as vastai-key; `config list` names them all.")]


def names() -> Mapping[str, str]:
    """Map short names to variables: `vastai-key` is VASTAI_API_KEY; the variable's own name works too."""
    variables = [*(one for entry in REGISTRY.values() for one in entry.fields), *OTHERS]
    return {_short(one): one for one in dict.fromkeys(variables)}


def _short(variable: str) -> str:
    bare = variable.removeprefix("GPU_SHOPPER_")
    return bare.replace("_API_KEY", "_KEY").lower().replace("_", "-")


@app.command("set")
def set_(
    name: Name,
    value: Annotated[
        str, typer.Argument(help="Without it you are prompted, and nothing is echoed; - reads standard input.")
    ] = "",
    keyring: Annotated[
        bool, typer.Option("--keyring", help="In the keyring of the operating system; .env then only names it.")
    ] = False,
) -> None:
    """Store a credential in .env, readable by you alone, or in the keyring. It is not shown, now or later."""
    variable = _variable(name)
    in_arguments = value not in ("", "-")
    if value == "-" or not (value or sys.stdin.isatty()):  # Without a terminal there is no prompt.
        value = sys.stdin.readline()
    elif not value:
        value = prompt(variable, hidden=True)
    value = value.strip()
    if not value or not all(" " <= character <= "~" for character in value):
        fail(f"{variable} is one line of printable ASCII; copy it again.", 2)
    if keyring:
        _at_keyring(lambda: vault.store(variable, value))
    _write(variable, vault.REFERENCE if keyring else value)
    where = "the keyring" if keyring else FILE.resolve()
    typer.echo(f"{variable} is stored in {where}; gpu-shopper doctor tries it.")
    if in_arguments:
        typer.echo(
            "Others on this machine could read it in the list of processes, and your shell may remember it. Next time "
            f"leave it out and you are prompted: gpu-shopper config set {_short(variable)}",
            err=True,
        )


@app.command()
def unset(name: Name) -> None:
    """Delete a credential."""
    variable, kept = _variable(name), _read()
    if variable not in kept:
        fail(f"{variable} is not in {FILE.resolve()}.")
    if kept[variable] == vault.REFERENCE:
        _at_keyring(lambda: vault.forget(variable))
    _write(variable, None)
    typer.echo(f"{variable} is forgotten.")


@app.command("list")
def list_(columns: Columns = "", as_json: Json = False) -> None:
    """List the credentials and where each one is set, without any value."""
    kept = _read()
    found = [(short, one, _where(one, kept)) for short, one in names().items()]
    if as_json:
        show([{"name": short, "variable": one, "set": where} for short, one, where in found])
    else:
        cells: ListColumns[tuple[str, str, str]] = (
            ("name", itemgetter(0)),
            ("variable", itemgetter(1)),
            ("set", itemgetter(2)),
        )
        show(listing("There are no credentials.", cells, found), columns)


def _at_keyring(step: Callable[[], None]) -> None:
    try:
        step()
    except vault.NoKeyring as error:
        fail(f"{error}.", BAD_SETTINGS)


def _where(variable: str, kept: Mapping[str, str]) -> str:
    if os.environ.get(variable):
        return "in the environment"
    if kept.get(variable) == vault.REFERENCE:
        return "in the keyring"
    return "in .env" if kept.get(variable) else "no"


def _variable(name: str) -> str:
    known = names()
    listed = ALIASES.get(name.lower(), name.lower())
    found = known.get(listed, name if name in known.values() else "")
    if not found:
        near = next(iter(difflib.get_close_matches(listed, [*known, *ALIASES], n=1)), "")
        guess = f"Did you mean `gpu-shopper config set {near}`? " if near else ""
        fail(f'{guess}There is no credential "{name[:40]}". Run `gpu-shopper config list` for all of them.', 2)
    return found


def _read() -> dict[str, str]:
    if not FILE.exists():
        return {}
    return {key: value or "" for key, value in dotenv_values(FILE, interpolate=False).items()}


def _write(variable: str, value: str | None) -> None:
    """Set one variable, or drop it, and keep every other line as it is, comments too.

    The file is replaced as a whole, so a reader sees the old one or the new one, and only its owner can read it.
    """
    escaped = (value or "").replace("\\", "\\\\").replace("'", "\\'")
    line = f"{variable}='{escaped}'\n" if value is not None else ""
    lines, said = [], False
    for one in parse_stream(io.StringIO(FILE.read_text(encoding="utf-8") if FILE.exists() else "")):
        text = one.original.string
        if one.key == variable:
            text = text[: len(text) - len(text.lstrip())] + ("" if said else line)
            said = True
        lines.append(text)
    if not said and line:
        lines.append(line if not lines or lines[-1].endswith("\n") else f"\n{line}")
    draft = FILE.with_name(f".env.{secrets.token_hex(4)}")
    try:
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.writelines(lines)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(FILE)
    except OSError as error:
        draft.unlink(missing_ok=True)
        fail(f"{FILE.resolve()} cannot be written: {error.strerror}.", BAD_SETTINGS)
