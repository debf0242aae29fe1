"""Read a job file, or join the words of a job, for the API."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bot import logs
from bot.cli.access.job_keys import unknown_keys
from bot.cli.terminal.screen import fail
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.facet import plain
from bot.rules.jobs.facets.queue import commands_in
from bot.rules.jobs.work_words import WORK_KEYS
from bot.rules.values.bad_word import BadWord

_SPACED = re.compile(r"([\w-]+)=([^\"'].*\s.*)", re.ASCII)


def line_of(words: Sequence[str]) -> str:
    """Join words to one line of the grammar, and restore the quotes of `for="a try"` that the shell removed."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    spaced = _SPACED.fullmatch(word)
    if spaced is None:
        return word
    key, value = spaced.groups()
    mark = next((one for one in "\"'" if one not in value), "")
    if not mark:
        fail(f"{key} has both kinds of quotes. Write it as --{key} where there is such an option, or in a job file.", 2)
    return f"{key}={mark}{value}{mark}"


def job_in(file: str) -> dict[str, Any]:
    """Read the job in a YAML or JSON file; words of the /gpu grammar may be fields too: `model: 7B`."""
    text = _read(file)
    try:
        document, tree = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}," if mark else ""
        fail(f"{file}{place} cannot be read: {logs.visible(str(error).splitlines()[0])}.", 2)
    if not isinstance(document, dict):
        fail(f"{file} is not a job. Its schema is docs/schemas/job.json.", 2)
    for line, sentence in unknown_keys(tree):
        fail(f"{file}, line {line}: {sentence}", 2)
    fields = {name: value for name, value in document.items() if name in JobDocument.model_fields and value is not None}
    words = {str(name): plain(value) for name, value in document.items() if name not in fields and value is not None}
    if isinstance(named := fields.get("queue"), str) and "\n" not in named.strip():
        fields["queue"] = _commands(file, named.strip())
    work = fields.get("work", {})
    return {**fields, "work": {**work, **words}} if words and isinstance(work, dict) else fields


def _commands(job: str, named: str) -> list[str]:
    """Return the commands of the file that a job file names, from its own folder on."""
    place = str(Path(job).expanduser().parent / Path(named).expanduser())
    commands = commands_in(_read(place))
    if not commands:
        fail(f"{place} has no commands. Write one a line.", 2)
    return commands


def least_memory(text: str) -> str:
    """Write the memory of a GPU as the language does: a bare number of GB means at least so many."""
    return f"{text}GB+" if text.strip().isdigit() else text


def text_of(file: str) -> str:
    """Return the text of a file without space around it; ends the program when it cannot be read."""
    return _read(file).strip()


def _read(file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except FileNotFoundError:
        fail(f"There is no file {file}.", 2)
    except UnicodeDecodeError:
        fail(f"{file} is not a text in UTF-8.", 2)
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}.", 2)


def count_in(option: str, text: str) -> int:
    """Read a number of tokens such as 41000 or 41k; ends the program when it is none."""
    try:
        return int(WORK_KEYS["tokens"].read(text)["tokens"])
    except BadWord as error:
        fail(f"{option}: {error}", 2)
