"""Tables and sentences on a terminal. Whatever came from outside is escaped and stripped of control characters."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from bot import logs
from bot.cli.screen import console
from bot.services.told import Told


def plain(text: str) -> str:
    """Foreign text for a terminal: no secret, no escape sequence, no markup."""
    return escape(logs.visible(logs.redact(text)))


def tell(told: Told) -> None:
    """Print an answer for people."""
    out = console()
    if told.lead:
        out.print(plain(told.lead))
    for table in told.tables:
        shown = Table(*table.head, title=table.title or None, title_justify="left", box=None)
        for row in table.rows:
            shown.add_row(*(plain(cell) for cell in row))
        out.print(shown)
    for sentence in told.sentences:
        out.print(plain(sentence))


def show(what: Any) -> None:
    """An answer for people, or one JSON document for programs."""
    if isinstance(what, Told):
        tell(what)
    else:
        typer.echo(json.dumps(what, indent=2, ensure_ascii=False))
