"""Read the word `volume`: the network volume that a machine mounts."""

from __future__ import annotations

from typing import Any

from bot.rules.grammar.bad_word import BadWord
from bot.rules.policy import volume_checks
from bot.rules.policy.policy import Policy


def read_volume_name(text: str, _policy: Policy) -> dict[str, Any]:
    """Read the name of a volume; whether it exists is checked when the request is made."""
    name = text.strip().lower()
    if wrong := volume_checks.bad_name(name):
        raise BadWord(wrong.sentence)
    return {"volume": name}
