"""Tables and sentences on a terminal. Whatever came from outside is escaped and stripped of control characters."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.markup import escape

from bot import logs
from bot.cli.terminal.layout import lines
from bot.cli.terminal.screen import console
from bot.rules.values.text_table import TextReport, TextTable


def plain(text: str) -> str:
    """Foreign text for a terminal: no secret, no escape sequence, no markup."""
    return escape(_visible(text))


def _visible(text: str) -> str:
    return logs.visible(logs.redact(text))


def _safe(table: TextTable) -> TextTable:
    return TextTable(head=table.head, rows=tuple(tuple(map(_visible, row)) for row in table.rows))


def print_report(told: TextReport) -> None:
    """Print an answer for people."""
    out = console()
    if told.lead:
        out.print(plain(told.lead))
    for table in told.tables:
        if table.title:
            out.print(plain(table.title), style="italic")
        for line in lines(_safe(table), out):
            out.print(line)
    for sentence in told.sentences:
        out.print(plain(sentence))


def show(what: Any) -> None:
    """An answer for people, or one JSON document for programs."""
    if isinstance(what, TextReport):
        print_report(what)
    else:
        typer.echo(json.dumps(what, indent=2, ensure_ascii=False))
