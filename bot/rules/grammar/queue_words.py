"""Read the queue of a job: a list of commands, one a line, or a template with the values that fill it."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bot.rules.grammar.bad_word import BadWord, show
from bot.wire.queue import MOST_COMMANDS

#: The most characters of one command, and of all of a queue as JSON writes them.
MOST_CHARACTERS: Final = 1000
MOST_IN_ALL: Final = 64_000
_PLACE = re.compile(r"\{([A-Za-z_]\w{0,39})\}", re.ASCII)


def read_queue(text: str, _policy: object) -> dict[str, Any]:
    """Read commands, one a line, a JSON list of them, or a JSON object with `run` and `values`. Raises `BadWord`."""
    said = _as_json(text)
    if isinstance(said, dict):
        commands = _matrix(said)
    elif isinstance(said, list):
        commands = [str(one).strip() for one in said]
    else:
        commands = commands_in(text)
    if not commands or not all(commands):
        raise BadWord("A queue needs commands, and none of them may be empty.")
    _check_size(commands)
    return {"queue": tuple(commands)}


def commands_in(text: str) -> list[str]:
    """Return the commands of a file: one a line, without empty lines and those that begin with #."""
    return [line for one in text.splitlines() if (line := one.strip()) and not line.startswith("#")]


def check_queue(said: Mapping[str, Any]) -> None:
    """Check that a queue is the only thing that runs. Raises `BadWord`."""
    if said.get("queue") and said.get("run") is not None:
        raise BadWord("run= and queue= exclude each other. Keep one of the two.")


def _as_json(text: str) -> object:
    """Read a list or an object; None for a command that only begins like one."""
    if not text.lstrip().startswith(("[", "{")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _matrix(said: Mapping[str, Any]) -> list[str]:
    """Fill the template with each combination of values, the last name changing first."""
    template, values = said.get("run"), said.get("values")
    if set(said) != {"run", "values"} or not isinstance(template, str) or not isinstance(values, dict):
        raise BadWord(
            'A queue as a matrix has run, such as "python train.py --lr {lr}", and values, such as lr: [1, 2].'
        )
    places = set(_PLACE.findall(template))
    for name, each in values.items():
        if name not in places:
            raise BadWord(f"{show(name)} has values, but {{{name[:40]}}} is not in the queue's run.")
        if not isinstance(each, list) or not each:
            raise BadWord(f"{show(name)} needs a list of values, such as [1, 2].")
    if missing := sorted(places - set(values)):
        raise BadWord(f"{{{missing[0]}}} is in the queue's run and has no values.")
    if (count := math.prod(len(each) for each in values.values())) > MOST_COMMANDS:
        raise BadWord(f"{count:,} commands are above the limit of {MOST_COMMANDS:,}.")
    names = list(values)
    return [_filled(template, dict(zip(names, one, strict=True))) for one in itertools.product(*values.values())]


def _filled(template: str, values: Mapping[str, Any]) -> str:
    return _PLACE.sub(lambda found: shlex.quote(str(values[found[1]])), template)


def _check_size(commands: Sequence[str]) -> None:
    if len(commands) > MOST_COMMANDS:
        raise BadWord(f"{len(commands):,} commands are above the limit of {MOST_COMMANDS:,}.")
    for number, one in enumerate(commands, 1):
        if len(one) > MOST_CHARACTERS or not one.isprintable():
            raise BadWord(f"Command {number} is not one line of at most {MOST_CHARACTERS:,} printable characters.")
    if len(json.dumps(commands)) > MOST_IN_ALL:
        raise BadWord(f"The commands have more than {MOST_IN_ALL:,} characters. Put what they share into a script.")
