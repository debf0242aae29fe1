"""Read the word `install`: the software stack that a machine installs before it starts the command."""

from __future__ import annotations

from typing import Any

from bot.rules.grammar.bad_word import BadWord, near, show
from bot.rules.policy.policy import Policy
from bot.rules.stacks.stack import STACKS


def read_install(text: str, _policy: Policy) -> dict[str, Any]:
    """Read the name of the software stack that is installed."""
    name = text.lower()
    if name not in STACKS:
        known = " and ".join(STACKS)
        raise BadWord(f"{show(text)} can't be installed by name; there are {known}.{near(name, STACKS)}")
    return {"install": name}
