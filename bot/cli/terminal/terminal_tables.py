"""Print tables and sentences on a terminal; foreign text is escaped and stripped of control characters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from bot import logs
from bot.cli.terminal.layout import lines
from bot.cli.terminal.screen import console
from bot.rules.values.text_table import TextReport, TextTable


def plain(text: str) -> str:
    """Clean foreign text for a terminal: no secret, no escape sequence, no markup."""
    return escape(_visible(text))


def _visible(text: str) -> str:
    return logs.visible(logs.redact(text))


def print_report(report: TextReport, out: Console | None = None) -> None:
    """Print an answer for people, on standard output unless another console is given."""
    out = out or console()
    if report.lead:
        out.print(plain(report.lead))
    for table in report.tables:
        if table.title:
            out.print(plain(table.title), style="italic")
        safe = TextTable(head=table.head, rows=tuple(tuple(map(_visible, row)) for row in table.rows))
        for line in lines(safe, out):
            out.print(line)
    for sentence in report.sentences:
        out.print(plain(sentence))


def show(what: Any) -> None:
    """Print an answer for people, or one JSON document for programs."""
    if isinstance(what, TextReport):
        print_report(what)
    else:
        typer.echo(json.dumps(what, indent=2, ensure_ascii=False))


def show_result(done: Any, *, as_json: bool) -> None:
    """Print what a command did: its sentence for people, the whole answer for programs."""
    show(done if as_json else TextReport(sentences=(done["sentence"],)))


def show_once(made: Any, name: str, *, as_json: bool) -> None:
    """Print a secret that is shown this once, alone on standard output."""
    if as_json:
        show(made)
    else:
        typer.echo(logs.visible(made["sentence"]), err=True)
        typer.echo(made[name])


def table_or(none: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> TextReport:
    """Build a table, or the sentence `none` where there is no row."""
    cells = tuple(tuple(row) for row in rows)
    return TextReport(tables=(TextTable(head=tuple(head), rows=cells),)) if cells else TextReport(sentences=(none,))
