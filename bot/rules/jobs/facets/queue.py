"""The commands that run one on each GPU: a list of them, one a line, or a template with the values that fill it."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field

from bot.rules.jobs.facet import Detail, DocumentPart, Fields, JobFacet, JobFacts, Key, NumberOrText, Text, Word, plain
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.values.bad_word import BadWord, show
from bot.rules.values.phrases import plural
from bot.wire.queue import MOST_COMMANDS

#: The most characters of one command, and of all of a queue as JSON writes them.
MOST_CHARACTERS: Final = 1000
MOST_IN_ALL: Final = 64_000
_PLACE = re.compile(r"\{([A-Za-z_]\w{0,39})\}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class QueueFields:
    """Commands that run instead of `run`, one on each GPU."""

    queue: tuple[str, ...] = ()


def _read_queue(text: str, _policy: object) -> Fields:
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


def _complete(fields: Fields, _policy: object) -> Fields:
    """Check that a queue is the only thing that runs. Raises `BadWord`."""
    if fields.get("queue") and fields.get("run") is not None:
        raise BadWord("run= and queue= exclude each other. Keep one of the two.")
    return fields


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


class QueueMatrix(DocumentPart):
    """Commands from one template: each combination of the values is a command."""

    run: Text = Field(description="The template.", examples=["python train.py --lr {lr} --seed {seed}"])
    values: Annotated[
        dict[Text, Annotated[list[NumberOrText], Field(max_length=MOST_COMMANDS)]], Field(max_length=10)
    ] = Field(description="Name in the template → its values.", examples=[{"lr": ["1e-4", "3e-4"], "seed": [1, 2, 3]}])


def _write(value: QueueMatrix | list[str] | str) -> Iterator[tuple[str, str, str]]:
    """Write a queue as the language reads it: a list or an object of JSON, because a word has no lines."""
    if isinstance(value, QueueMatrix):
        values = {name: list(map(plain, each)) for name, each in value.values.items()}
        yield "queue", "queue", json.dumps({"run": value.run, "values": values})
    else:
        yield "queue", "queue", json.dumps(commands_in(value) if isinstance(value, str) else value)


def _check(job: QueueFields, facts: JobFacts) -> BoundsVerdict | None:
    return facts.without_agent("queue=") if job.queue else None


def _details(job: QueueFields) -> Iterator[Detail]:
    if job.queue:
        yield Detail("queue", plural(len(job.queue), "command"))


QUEUE = JobFacet(
    fields=QueueFields,
    check=_check,
    words=(
        Word(
            "queue",
            "COMMANDS",
            "Commands for one GPU each.",
            'queue=\'["python a.py","python b.py"]\'',
            _read_queue,
        ),
    ),
    keys=(
        Key(
            "queue",
            QueueMatrix
            | Annotated[list[Text], Field(max_length=MOST_COMMANDS)]
            | Annotated[str, Field(max_length=MOST_IN_ALL)]
            | None,
            "Commands that run one on each GPU, in place of `run`: a list, a text with one command a line, or "
            "a template with values. In a job file also the name of a file with one command a line.",
            examples=[["python train.py --seed 1", "python train.py --seed 2"]],
            write=_write,
        ),
    ),
    complete=(_complete,),
    details=_details,
)
