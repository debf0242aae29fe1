"""Write a command inside a sentence, so that each reader sees the one that they can type.

Services name the command of the terminal. Slack shows its own where it has one, and the terminal's otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: The terminal's command → Slack's, where both have it and take the same words.
_IN_SLACK: Final[Mapping[str, str]] = {
    **{
        name: name
        for name in (
            *("provision", "inventory", "plan", "compare", "extend", "done", "stop", "start", "restart"),
            *("cancel", "why", "break-glass", "audit", "costs", "history", "share", "migrate", "again"),
        )
    },
    "shutdown": "terminate",
    "sessions": "list",
    "requests": "list",
    "session": "status",
    "request": "status",
    "ssh-key": "key",
    "ssh-key show": "key list",
    "secret set": "secret add",
    "secret list": "secret list",
    "secret delete": "secret delete",
}
#: A command in a sentence; Slack's cleaning has replaced its backticks by a sign that looks alike.
_COMMAND: Final = re.compile(r"[`ʼ]gpu-shopper (([a-z-]+)(?: [a-z]+)?)([^`ʼ]{0,200})[`ʼ]")


def cli_command(words: str) -> str:
    """Write a command of the terminal: `gpu-shopper shutdown 4k7m2p`, in backticks."""
    return f"`gpu-shopper {words}`"


def in_slack(text: str, slash: str = "/gpu") -> str:
    """Return a cleaned sentence for Slack: its commands in code style, as slash commands where Slack has them."""

    def shown(found: re.Match[str]) -> str:
        whole, name, rest = found[1], found[2], found[3]
        if whole in _IN_SLACK:
            return f"`{slash} {_IN_SLACK[whole]}{rest}`"
        rest = whole.removeprefix(name) + rest
        return f"`{slash} {_IN_SLACK[name]}{rest}`" if name in _IN_SLACK else f"`gpu-shopper {name}{rest}`"

    return _COMMAND.sub(shown, text)
