"""Generate docs/cli.md: the commands with their options, their REST routes, and the exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from bot.cli.access.api_client import KEY, URL
from bot.cli.command_table import COMMANDS
from bot.cli.lazy import imported
from bot.cli.pages.markdown import code, table, whole_page
from bot.cli.terminal.screen import BAD_SETTINGS, NO_PERMISSION, TIMED_OUT, TRY_AGAIN, UNAVAILABLE

ENDS = (
    ("0", "done"),
    ("1", "refused, or no offer fits; the reason is on standard error"),
    ("2", "a wrong option, word or id"),
    ("3", "`progress`: the approval does not cover the expected end"),
    (
        str(UNAVAILABLE),
        "the service or every cloud is out of reach, or asks to slow down; `run`: the request found no offer",
    ),
    (str(TRY_AGAIN), "`run`: the machine was lost or ended before its job did"),
    (str(NO_PERMISSION), "the key does not work, or lacks the right; `run`: the request was rejected or cancelled"),
    (str(BAD_SETTINGS), "settings that cannot be used"),
    (str(TIMED_OUT), "`run`: nobody approved the request in time, or `--timeout` has passed"),
    ("127", "`ssh`, `scp` and `rsync`: the program is not installed here; else they end with its own code"),
    ("130", "interrupted"),
    ("other", "`run --wait` ends with the exit code of its job; the last line says which of both it is"),
)


#: The option that every command has.
HELP = "--help"


def _sections(name: str, command: Any) -> Iterator[str]:
    """Describe one command and those below it: what it does, how it is typed, and its options."""
    below = getattr(command, "commands", {})
    if not below:
        yield f"### {name}"
        yield "\n\n".join(part.replace("\n", " ") for part in inspect.cleandoc(command.help or "").split("\n\n"))
        words = " ".join(_typed(param) for param in command.params if param.param_type_name == "argument")
        yield f"```\n{f'{name} {words}'.strip()}\n```"
        rows = [row for param in command.params if (row := _row(param))]
        yield from [table(("", "meaning"), rows)] if rows else []
    for sub, one in below.items():
        yield from _sections(f"{name} {sub}", one)


def _typed(param: Any) -> str:
    word = (param.metavar or param.name).upper() + ("..." if param.nargs == -1 else "")
    return word if param.required else f"[{word}]"


def _row(param: Any) -> tuple[str, str] | None:
    """Return how one option or argument is typed and what it means; None for `--help`."""
    if HELP in param.opts or getattr(param, "hidden", False):
        return None
    if param.param_type_name == "argument":
        return code((param.metavar or param.name).upper()), param.help or ""
    value = "" if param.is_flag else f" {param.metavar or 'VALUE'}"
    default = f" Default: {code(str(param.default))}." if _is_shown(param) else ""
    return ", ".join(code(f"{name}{value}") for name in param.opts), f"{param.help or ''}{default}"


def _is_shown(param: Any) -> bool:
    return not param.is_flag and isinstance(param.default, str | int) and param.default not in ("", 0)


def page() -> str:
    groups: dict[str, list[str]] = {}
    for name, entry in COMMANDS.items():
        if not entry.hidden:
            groups.setdefault(entry.panel, []).extend(_sections(f"gpu-shopper {name}", imported(name)))
    rows = [
        (code(f"gpu-shopper {name}"), entry.help, "<br>".join(code(route) for route in entry.routes) or "this machine")
        for name, entry in COMMANDS.items()
        if not entry.hidden
    ]
    return whole_page(
        "The command line",
        f"Set `{URL}` and `{KEY}` to use `gpu-shopper` from anywhere, over the REST API. Without them, it works on the "
        "ledger of this machine, as the operator who types. The commands are the same. Results go to standard output, "
        "progress and refusals to standard error; `NO_COLOR` is obeyed. On a terminal a list is a table with local "
        "times. In a pipe it is tab-separated values without a heading, and sentences go to standard error; "
        "`--columns` chooses the columns. `--json` prints one document for programs, with times in UTC. With `COLUMNS` "
        "set, the output is as on a terminal of that width.",
        table(("command", "what it does", "the same by REST"), rows),
        "## Exit codes",
        table(("code", "meaning"), [(code(number), meaning) for number, meaning in ENDS]),
        *(part for panel, parts in groups.items() for part in (f"## {panel}", *parts)),
    )
