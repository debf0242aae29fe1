"""Print a list: a table that fits the terminal, or tab-separated values in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import typer

from bot.cli.terminal.layout import left_out, lines
from bot.cli.terminal.screen import console, fail, for_people, say, visible

GAPS = str.maketrans("\t\n", "  ")
#: What a cell shows to people where there is no value; a program reads nothing there.
NONE = "-"
Item = TypeVar("Item")
#: The columns of a list, in order: each is its heading and what makes its cell from an item.
ListColumns = tuple[tuple[str, Callable[[Item], str]], ...]


@dataclass(frozen=True, slots=True)
class ListView:
    """Rows of a list: `none` is the sentence for no rows, `extra` the columns that are shown only where they fit."""

    none: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...] = ()
    extra: frozenset[str] = frozenset()


def listing(
    none: str,
    columns: ListColumns[Item],
    items: Iterable[Item],
    sentences: Iterable[str] = (),
    extra: Iterable[str] = (),
) -> ListView:
    """Build a list with a row for each item. A heading and its cells are one pair, so they stand together."""
    head, extra = tuple(heading for heading, _ in columns), frozenset(extra)
    if unknown := extra.difference(head):
        raise ValueError(f"no column has the heading {', '.join(sorted(unknown))}")
    rows = tuple(tuple(cell(item) for _, cell in columns) for item in items)
    return ListView(none, head, rows, tuple(sentences), extra)


def chosen(one: ListView, columns: str) -> ListView:
    """Return the list with these columns, in this order; ends the program at a name that it does not have."""
    if not columns:
        return one
    places = {_key(name): place for place, name in enumerate(one.head)}
    wanted = [_key(name) for name in columns.split(",")]
    if unknown := [name for name in wanted if name not in places]:
        fail(f'There is no column "{unknown[0]}". Columns: {",".join(places)}.', 2)
    order = [places[name] for name in wanted]
    rows = tuple(tuple(row[place] for place in order) for row in one.rows)
    return replace(one, head=tuple(one.head[place] for place in order), rows=rows, extra=frozenset())


def _key(name: str) -> str:
    return name.strip().lower().replace(" ", "-")


def print_values(rows: Iterable[Sequence[str]]) -> None:
    """Print rows for programs: tab-separated values without a heading."""
    for row in rows:
        typer.echo("\t".join("" if cell == NONE else visible(cell).translate(GAPS) for cell in row))


def print_listing(one: ListView, columns: str = "") -> None:
    """Print a list for people, or one line a row for programs; then its sentences are on standard error."""
    one = chosen(one, columns)
    if not for_people():
        print_values(one.rows)
    elif one.rows:
        out = console()
        safe = tuple(tuple(map(visible, row)) for row in one.rows)
        for line in lines(one.head, safe, out, one.extra):
            out.print(line)
        if gone := left_out(one.head, safe, out.width, one.extra):
            say(f"No room for {', '.join(gone)}: add `--columns {','.join(map(_key, (one.head[0], *gone)))}`.", "dim")
    for said in one.sentences if one.rows else (one.none, *one.sentences):
        say(said, stderr=not for_people())
