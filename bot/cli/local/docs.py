"""`gpu-shopper docs`: write the generated pages, or list those that do not match the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import typer

from bot.cli.access.settings import fail
from bot.cli.pages import PAGES
from bot.cli.pages.commands import short_table
from bot.cli.pages.settings import settings_table

README = "README.md"
#: Table between two marks of the README → the function that writes it.
TABLES: Mapping[str, Callable[[], str]] = MappingProxyType({"commands": short_table, "settings": settings_table})


class Unmarked(ValueError):
    """An error: the README lacks the mark that the message names."""


def docs(
    check: bool = typer.Option(False, "--check", help="Write nothing; fail when a page is out of step."),
    folder: str = typer.Option("docs", help="Where the pages are; the README is beside it."),
) -> None:
    """Write the generated pages under docs/ and the tables of commands and settings in the README."""
    pages = Path(folder)
    wanted = {pages / name: make() for name, make in PAGES.items()}
    readme = pages.parent / README
    if readme.exists():
        try:
            wanted[readme] = with_tables(readme.read_text(encoding="utf-8"))
        except Unmarked as error:
            fail(f"{README} lacks the mark {error}.")
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if check and stale:
        fail(f"out of step with the code: {', '.join(str(path) for path in stale)}; run: make docs")
    if check:
        typer.echo(f"{len(wanted)} pages agree with the code.")
        return
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    typer.echo(f"{len(stale)} of {len(wanted)} pages written.")


def marks(name: str) -> tuple[str, str]:
    """Return the marks where the table `name` begins and ends."""
    return f"<!-- {name}: made by `make docs` -->", f"<!-- end of {name} -->"


def with_tables(text: str) -> str:
    """Return `text` with each table between its marks; raises `Unmarked` where a mark is missing."""
    for name, make in TABLES.items():
        begin, end = marks(name)
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if not found or not closed:
            raise Unmarked(begin if not found else end)
        text = f"{head}{begin}\n\n{make()}\n\n{end}{tail}"
    return text
