"""Build Markdown pages and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MADE = "<!-- Made by `make docs` from the code. Change the code, then run it again. -->"


def whole_page(title: str, *parts: str) -> str:
    """Join a whole page: title, the note that it is generated, and its parts with blank lines between."""
    return "\n\n".join([f"# {title}", MADE, *parts]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar inside a cell is escaped, a line break becomes a space."""
    lines = [_row(head), "|" + " --- |" * len(head)]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def code(text: str) -> str:
    """Return text in a fixed-width font; nothing for nothing."""
    return f"`{text}`" if text else ""


def value_cell(default: str, example: str) -> str:
    """Return a cell with a default and an example; the example is left out where it says the same."""
    shown = f"Default: {code(default) or 'none'}."
    return f"{shown} Example: {code(example)}." if example and not example.endswith(default or "none") else shown


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
