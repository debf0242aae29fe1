"""What commands share: reading the settings with a clear end when they are wrong, and a console that obeys NO_COLOR."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Never

import typer
from rich.console import Console

from bot import logs
from bot.settings import Settings, load
from bot.settings.environment import LogFormat
from ledger.values import Actor, ActorKind

#: The exit code for settings that cannot be used (sysexits.h: EX_CONFIG).
BAD_SETTINGS = 78


def console(*, stderr: bool = False) -> Console:
    """A console: rich on a terminal, plain when piped; colours off when NO_COLOR is set."""
    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def fail(sentence: str, code: int = 1) -> Never:
    """Say why on standard error and end."""
    console(stderr=True).print(sentence, style="red", markup=False)
    raise typer.Exit(code)


@contextmanager
def explained() -> Iterator[None]:
    """Turn the errors that carry a sentence for people into that sentence, without a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        fail(logs.redact(str(error)), BAD_SETTINGS)


def settings() -> Settings:
    """The settings of this installation, with logs set up after them. Ends the program when they are wrong."""
    with explained():
        found = load()
    start_logs(found)
    return found


def start_logs(found: Settings) -> None:
    """Logs as the settings say, to standard error."""
    logs.register_secrets(found.secrets())
    as_json = found.log_format is LogFormat.JSON
    if found.log_format is LogFormat.AUTO:
        as_json = not sys.stderr.isatty()
    logs.configure(level=found.log_level, json=as_json)


def operator() -> Actor:
    """Whoever runs this command, by the system's own name."""
    return Actor(ActorKind.OPERATOR, getpass.getuser())


def private_umask() -> None:
    """Every file that this process makes is for its own user only."""
    os.umask(0o077)
