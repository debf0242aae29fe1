"""`gpu-shopper docs`: write the generated pages, or list those that do not match the code."""

from __future__ import annotations

from pathlib import Path

import typer

from bot.cli.access.settings import fail
from bot.cli.pages import PAGES


def docs(
    check: bool = typer.Option(False, "--check", help="Write nothing; fail when a page does not match the code."),
    folder: str = typer.Option("docs", help="Where the pages are."),
) -> None:
    """Write the generated pages under docs/."""
    pages = Path(folder)
    wanted = {pages / name: make() for name, make in PAGES.items()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if check and stale:
        fail(f"These pages do not match the code: {', '.join(str(path) for path in stale)}. Run: make docs")
    if check:
        typer.echo(f"{len(wanted)} pages match the code.")
        return
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    typer.echo(f"{len(stale)} of {len(wanted)} pages written.")
