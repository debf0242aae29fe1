"""The terminal: a console that obeys NO_COLOR, and clear ends. Light to import, because every command needs it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Never

import typer
from rich.console import Console

from bot import logs

#: Exit codes, after sysexits.h where it has one. 1: refused, or nothing found; 2: a wrong option or word.
UNAVAILABLE, NO_PERMISSION, BAD_SETTINGS = 69, 77, 78


#: Wider than any row: what is piped is not wrapped, so that each row is one line.
ENDLESS = 10_000
INTERRUPTED = 130


def console(*, stderr: bool = False) -> Console:
    """A console: rich on a terminal, plain when piped; colours off when NO_COLOR is set."""
    piped = not (sys.stderr if stderr else sys.stdout).isatty() and "COLUMNS" not in os.environ
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=ENDLESS if piped else None)


def ask(question: str, default: str | None = None, *, show_default: bool = True, hidden: bool = False) -> str:
    """What the person at the terminal types. Ctrl-C and Ctrl-D end the program, also while a loop runs around it."""
    # The loop's own handler only notes the key, and would wait for the answer.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _interrupted():
            raise typer.Exit(INTERRUPTED)
        said = typer.prompt(question, default=default, show_default=show_default, hide_input=hidden, err=hidden)
        return str(said).strip()
    except (typer.Abort, KeyboardInterrupt):
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)


def at_terminal() -> bool:
    """Whether a person is there to be asked: neither what they type nor what they read is piped."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def agreed(question: str) -> bool:
    """Whether the person at the terminal says yes; Enter alone means no."""
    while True:
        said = ask(f"{question} [y/N]", "", show_default=False).lower()
        if said in ("", "n", "no", "y", "yes"):
            return said.startswith("y")
        typer.echo("Say y or n.")


def _interrupted() -> bool:
    """Whether Ctrl-C was pressed since the last wait: the loop noted it as a cancellation that no wait has met yet."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def fail(sentence: str, code: int = 1) -> Never:
    """Say why on standard error and end. A line of it may be somebody else's words, so none can forge another."""
    shown = "\n".join(map(logs.visible, sentence.split("\n")))
    console(stderr=True).print(shown, style="red", markup=False)
    raise typer.Exit(code)
