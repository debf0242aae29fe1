"""Open a console that obeys NO_COLOR, prompt, and fail; light to import, because every command needs it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Never

import typer
from rich.console import Console
from rich.text import Text

from bot import logs
from bot.cli.terminal.wording import for_terminal

#: Exit codes, after sysexits.h where it has one. 1: refused, or nothing found; 2: a wrong option or word.
UNAVAILABLE, NO_PERMISSION, BAD_SETTINGS = 69, 77, 78


#: Wider than any row: piped output is not wrapped, so that each row is one line.
ENDLESS = 10_000
INTERRUPTED = 130
#: Commands in a sentence, as a person types them.
COMMAND = r"`[^`]+`"


def group(help_line: str) -> typer.Typer:
    """Build a command of several below it; alone it prints its help."""
    return typer.Typer(no_args_is_help=True, add_completion=False, help=help_line)


def for_people(*, stderr: bool = False) -> bool:
    """Whether a person reads the output: on a terminal, or where COLUMNS asks for the width of one."""
    return (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ


def console(*, stderr: bool = False) -> Console:
    """Return a console: rich on a terminal, plain when piped; without colours when NO_COLOR is set."""
    width = None if for_people(stderr=stderr) else ENDLESS
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=width)


def visible(text: str) -> str:
    """Clean foreign text and word it for a terminal: no secret, no escape sequence, no command of Slack."""
    return for_terminal(logs.visible(logs.redact(text)))


def sentence(text: str, style: str = "") -> Text:
    """Return a sentence to print, with its commands in another colour."""
    said = Text("\n".join(map(visible, text.split("\n"))), style=style)
    said.highlight_regex(COMMAND, "cyan")
    return said


def prompt(question: str, default: str | None = None, *, show_default: bool = True, hidden: bool = False) -> str:
    """Prompt the person at the terminal; Ctrl-C and Ctrl-D end the program, even inside an event loop."""
    # The event loop's own handler only notes Ctrl-C, and would wait for the answer.
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
    """Whether a person can answer a prompt: neither standard input nor standard output is piped."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def agreed(question: str) -> bool:
    """Whether the person at the terminal says yes; Enter alone means no."""
    while True:
        said = prompt(f"{question} [y/N]", "", show_default=False).lower()
        if said in ("", "n", "no", "y", "yes"):
            return said.startswith("y")
        typer.echo("Say y or n.")


def _interrupted() -> bool:
    """Whether Ctrl-C was pressed since the last wait: the loop noted a cancellation that it has not raised yet."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def fail(reason: str, code: int = 1) -> Never:
    """Print the reason on standard error and exit.

    Control characters are escaped, so foreign text in it cannot forge another line.
    """
    console(stderr=True).print(sentence(reason, "red"))
    raise typer.Exit(code)
