"""`gpu-shopper docs`: writes the generated pages, or says which are out of step with the code."""

from __future__ import annotations

from pathlib import Path

import typer

from bot.cli.pages import PAGES
from bot.cli.pages.settings import settings_table
from bot.cli.shared import fail

README = "README.md"
BEGIN, END = "<!-- settings: made by `make docs` -->", "<!-- end of settings -->"

app = typer.Typer(add_completion=False)


@app.command()
def docs(
    check: bool = typer.Option(False, "--check", help="Write nothing; fail when a page is out of step."),
    folder: str = typer.Option("docs", help="Where the pages are; the README is beside it."),
) -> None:
    """Write the one-page lists under docs/ and the table of settings in the README."""
    pages = Path(folder)
    wanted = {pages / name: make() for name, make in PAGES.items()}
    readme = pages.parent / README
    if readme.exists():
        wanted[readme] = with_settings(readme.read_text(encoding="utf-8"))
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


def with_settings(text: str) -> str:
    """`text` with the table of settings between its two marks; unchanged without the marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    return f"{head}{begin}\n\n{settings_table()}\n\n{end}{tail}" if begin and end else text
