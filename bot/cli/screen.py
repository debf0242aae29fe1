"""The terminal: a console that obeys NO_COLOR, and clear ends. Light to import, because every command needs it."""

from __future__ import annotations

from typing import Never

import typer
from rich.console import Console

#: Exit codes, after sysexits.h where it has one. 1: refused, or nothing found; 2: a wrong option or word.
UNAVAILABLE, NO_PERMISSION, BAD_SETTINGS = 69, 77, 78


def console(*, stderr: bool = False) -> Console:
    """A console: rich on a terminal, plain when piped; colours off when NO_COLOR is set."""
    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def fail(sentence: str, code: int = 1) -> Never:
    """Say why on standard error and end."""
    console(stderr=True).print(sentence, style="red", markup=False)
    raise typer.Exit(code)
