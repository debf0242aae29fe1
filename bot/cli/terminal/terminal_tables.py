"""Print tables and sentences on a terminal; foreign text is escaped and stripped of control characters."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console

from bot.cli.terminal.layout import lines
from bot.cli.terminal.listing import ListView, print_listing, print_values
from bot.cli.terminal.screen import console, for_people, say, visible
from bot.rules.values.text_table import TextReport


def print_report(report: TextReport, out: Console | None = None, *, is_list: bool = False) -> None:
    """Print an answer for people, on standard output unless another console is given.

    `is_list`: its tables are all of it, so that in a pipe they are tab-separated values and its words go to standard
    error.
    """
    is_data = is_list and bool(report.tables) and not for_people()
    out = out or console()
    if report.lead:
        say(report.lead, stderr=is_data)
    for table in report.tables:
        if is_data:
            print_values(table.rows)
            continue
        if table.title:
            say(table.title, "italic")
        safe = tuple(tuple(map(visible, row)) for row in table.rows)
        for line in lines(table.head, safe, out):
            out.print(line)
    for said in report.sentences:
        say(said, stderr=is_data)


def show(what: Any, columns: str = "") -> None:
    """Print a list or a report, or one JSON document for programs."""
    if isinstance(what, ListView):
        print_listing(what, columns)
    elif isinstance(what, TextReport):
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
        say(made["sentence"], stderr=True)
        typer.echo(made[name])
