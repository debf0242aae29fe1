"""Tables and sentences on a terminal. Whatever came from outside is escaped and stripped of control characters."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from bot import logs
from bot.cli.screen import console
from bot.services.told import TextTable, Told

#: Columns whose cells are read and not typed, and the least width of one.
LEAST = 14
PROSE = frozenset({"why", "reason", "marks", "region", "range", "until", "made", "ends", "name"})


def plain(text: str) -> str:
    """Foreign text for a terminal: no secret, no escape sequence, no markup."""
    return escape(logs.visible(logs.redact(text)))


def tell(told: Told) -> None:
    """Print an answer for people."""
    out = console()
    if told.lead:
        out.print(plain(told.lead))
    for table in told.tables:
        out.print(_drawn(table, out.width))
    for sentence in told.sentences:
        out.print(plain(sentence))


def _drawn(table: TextTable, width: int) -> Table:
    """Names and ids are typed again, so nothing is shortened: prose gives way first, and what is left is folded."""
    shown = Table(title=table.title or None, title_justify="left", box=None)
    columns = list(zip(table.head, zip(*table.rows, strict=True), strict=True)) if table.rows else []
    typed = sum(max(map(cell_len, (name, *cells))) + 2 for name, cells in columns if name not in PROSE)
    fits = typed + LEAST * sum(name in PROSE for name in table.head) <= width
    for name in table.head:
        shown.add_column(name, no_wrap=fits and name not in PROSE, overflow="fold")
    for row in table.rows:
        shown.add_row(*(plain(cell) for cell in row))
    return shown


def show(what: Any) -> None:
    """An answer for people, or one JSON document for programs."""
    if isinstance(what, Told):
        tell(what)
    else:
        typer.echo(json.dumps(what, indent=2, ensure_ascii=False))
