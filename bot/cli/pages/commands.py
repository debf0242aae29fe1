"""Generate docs/cli.md: the commands, their REST routes and the exit codes."""

from __future__ import annotations

from bot.cli.access.api_client import KEY, URL
from bot.cli.lazy import COMMANDS
from bot.cli.pages.markdown import code, table, whole_page
from bot.cli.terminal.screen import BAD_SETTINGS, NO_PERMISSION, UNAVAILABLE

ENDS = (
    ("0", "done"),
    ("1", "refused, or no offer fits; the reason is on standard error"),
    ("2", "a wrong option, word or id"),
    ("3", "`progress`: the approval does not cover the expected end"),
    (str(UNAVAILABLE), "the service or every cloud is out of reach, or asks to slow down"),
    (str(NO_PERMISSION), "the key does not work, or lacks the right"),
    (str(BAD_SETTINGS), "settings that cannot be used"),
    ("127", "`ssh`, `scp` and `rsync`: the program is not installed here; else they end with its own code"),
    ("130", "interrupted"),
)


def page() -> str:
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
    )
