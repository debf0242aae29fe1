"""Read `volume create data 200GB for=14d`, and what else can be done with a network volume."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from bot.rules.grammar.commands import Subcommand
from bot.rules.grammar.readers import ParsedCommand, Wrong, end
from bot.rules.jobs import network_volume
from bot.rules.jobs.facets.limits import read_clouds, read_regions
from bot.rules.jobs.words import duration
from bot.rules.policy import job_bounds, volume_checks
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord, near, show
from bot.rules.values.text import WordToken

ACTIONS = ("create", "list", "extend", "delete")
_SIZE = re.compile(r"(\d{1,6}(?:\.\d)?)(gb|g|tb|t)?")
_KEYED = re.compile(r"-{0,2}([a-z]+)=(.+)", re.DOTALL | re.IGNORECASE)


def read_volume(sub: Subcommand, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    """Read a volume command: its action, the volume's name, and the rest. Without an action, it lists volumes."""
    action = words[0].value.lower() if words else "list"
    if action not in ACTIONS:
        said = f"{show(words[0].value)} is not a volume command; use {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}."
        raise Wrong(words[0], f"{said}{near(action, ACTIONS)}")
    rest = words[1:]
    if action == "list":
        if rest:
            raise Wrong(rest[0], "Write volume list with nothing after it.")
        return ParsedCommand(sub.name, action=action)
    if not rest:
        raise Wrong(end(line), f"Name the volume, as in volume {action} data.")
    name = rest[0].value.lower()
    if wrong := volume_checks.bad_name(name):
        raise Wrong(rest[0], wrong.sentence)
    if action == "create":
        return _create(sub, name, rest[1:], line, policy)
    if action == "extend":
        return _extend(sub, name, rest[1:], line)
    if len(rest) > 1:
        raise Wrong(rest[1], "Name one volume only, as in volume delete data.")
    return ParsedCommand(sub.name, action=action, target=name)


def size_gb(text: str) -> int | None:
    """Read `200GB`, `2TB` or `200`; None for what is no size."""
    found = _SIZE.fullmatch(text.lower().replace(" ", ""))
    if found is None:
        return None
    size = Decimal(found[1]) * (1000 if (found[2] or "g").startswith("t") else 1)
    return int(size) if size == int(size) and size > 0 else None


def time_h(text: str) -> Decimal:
    """Read how long a volume stays: `14d`, `36h`. Raises `BadWord`."""
    hours = duration(text)
    if hours is None:
        raise BadWord(f"{show(text)} is not a time; write 14d or 36h.")
    if wrong := volume_checks.bad_time(hours):
        raise BadWord(wrong.sentence)
    return hours


def _for(text: str, _policy: Policy) -> dict[str, Any]:
    return {"hours": time_h(text)}


def _place(text: str, policy: Policy) -> dict[str, Any]:
    return {"regions": read_regions(text, policy)["regions"]}


def _cloud(text: str, policy: Policy) -> dict[str, Any]:
    return {"clouds": read_clouds(text, policy)["candidates"]}


_KEYS: Mapping[str, Callable[[str, Policy], dict[str, Any]]] = {
    **dict.fromkeys(("for", "time"), _for),
    **dict.fromkeys(("cloud", "clouds", "provider"), _cloud),
    **dict.fromkeys(("region", "regions"), _place),
}


def _create(sub: Subcommand, name: str, words: list[WordToken], line: str, policy: Policy) -> ParsedCommand:
    size = size_gb(words[0].value) if words else None
    if size is None:
        wrong_size = f"{show(words[0].value)} is not a size. " if words else ""
        raise Wrong(
            words[0] if words else end(line), f"{wrong_size}After the name, write the size, such as 200GB or 2TB."
        )
    said: dict[str, Any] = {}
    reason: list[str] = []
    for word in words[1:]:
        keyed = _KEYED.fullmatch(word.value)
        read = _KEYS.get(keyed[1].lower()) if keyed is not None else None
        if keyed is None or read is None:
            reason.append(word.value)
            continue
        try:
            said |= read(keyed[2], policy)
        except BadWord as error:
            raise Wrong(word, str(error)) from error
    why = " ".join(reason)
    if wrong := job_bounds.reason(why, policy):
        raise Wrong(words[1], wrong.sentence)
    return ParsedCommand(
        sub.name, network_volume.volume_job(name, size, **said, reason=why), target=name, action="create"
    )


def _extend(sub: Subcommand, name: str, words: list[WordToken], line: str) -> ParsedCommand:
    if not words:
        raise Wrong(end(line), f"Say for how much longer, as in volume extend {name} 7d.")
    try:
        hours = time_h(words[0].value)
    except BadWord as error:
        raise Wrong(words[0], str(error)) from error
    why = " ".join(word.value for word in words[1:])
    return ParsedCommand(sub.name, target=name, action="extend", hours=hours, text=why)
