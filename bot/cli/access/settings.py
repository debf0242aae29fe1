"""Read the settings for commands on the server, start the logs, and name the operator."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bot import logs
from bot.cli.terminal.screen import BAD_SETTINGS, console, fail
from bot.settings import Settings, load
from bot.settings.fields import LogFormat
from ledger.kernel.actor import Actor, ActorKind

__all__ = ["BAD_SETTINGS", "console", "explained", "fail", "operator", "private_umask", "settings", "start_logs"]


@contextmanager
def explained() -> Iterator[None]:
    """Turn an error that carries a sentence for people into that sentence, without a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        fail(logs.redact(str(error)), BAD_SETTINGS)


def settings() -> Settings:
    """Read this installation's settings and start its logs; ends the program when the settings are wrong."""
    with explained():
        found = load()
    start_logs(found)
    return found


def start_logs(found: Settings) -> None:
    """Start logs as the settings say, on standard error."""
    logs.register_secrets(found.secrets())
    as_json = found.log_format is LogFormat.JSON
    if found.log_format is LogFormat.AUTO:
        as_json = not sys.stderr.isatty()
    logs.configure(level=found.log_level, json=as_json)


def operator() -> Actor:
    """Return the user who runs this command, by the system's own name."""
    return Actor(ActorKind.OPERATOR, getpass.getuser())


def private_umask() -> None:
    """Make every new file of this process readable by its own user only."""
    os.umask(0o077)
