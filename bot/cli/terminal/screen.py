"""Open a console that obeys NO_COLOR, prompt, and fail; light to import, because every command needs it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import textwrap
from typing import Never

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from bot import logs
from bot.cli.terminal.wording import for_terminal

#: Exit codes, after sysexits.h where it has one. 1: refused, or nothing found; 2: a wrong option or word.
UNAVAILABLE, NO_PERMISSION, BAD_SETTINGS = 69, 77, 78
#: A machine that ended before its job, as a failure that may pass; a time that ran out, as `timeout` has it.
TRY_AGAIN, TIMED_OUT = 75, 124


#: Wider than any row: piped output is not wrapped, so that each row is one line.
ENDLESS = 10_000
INTERRUPTED = 130
#: Commands in a sentence, as a person types them.
COMMAND = r"`[^`]+`"
#: Stands for a space at which a line is not wrapped; no visible text contains it.
HELD = "\x00"


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


def say(text: str, style: str = "", *, stderr: bool = False) -> None:
    """Print what a person reads; commands have another colour and stay on one line."""
    out = console(stderr=stderr)
    for line in text.split("\n"):
        said = Text("\n".join(_wrapped(visible(line), out.width)), style=style)
        said.highlight_regex(COMMAND, "cyan")
        out.print(said)


def _wrapped(line: str, width: int) -> list[str]:
    """Wrap prose between words; a line that does not end as a sentence is a value to copy, and stays whole."""
    if not line.endswith((".", "?", "!")) or cell_len(line) <= width:
        return [line]
    whole = re.sub(COMMAND, lambda command: command[0].replace(" ", HELD), line)
    parts = textwrap.wrap(whole, width, break_long_words=False, break_on_hyphens=False)
    return [part.replace(HELD, " ") for part in parts]


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
    say(reason, "red", stderr=True)
    raise typer.Exit(code)
