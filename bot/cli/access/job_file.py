"""A job as the command line takes it: a file or words, as the document that the API reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bot import logs
from bot.cli.terminal.screen import fail
from bot.rules.grammar.job_document import JobDocument, plain

_SPACED = re.compile(r"([\w-]+)=([^\"]*\s[^\"]*)", re.ASCII)


def line_of(words: Sequence[str]) -> str:
    """Words as one line of the language. The shell took the quotes of `for="a try"` away; they come back."""
    spaced = (_SPACED.fullmatch(word) for word in words)
    return " ".join(f'{one[1]}="{one[2]}"' if one else word for one, word in zip(spaced, words, strict=True))


def job_in(file: str) -> dict[str, Any]:
    """The job in a YAML or JSON file. Words of the /gpu language may stand beside the fields: `model: 7B`."""
    try:
        told = yaml.safe_load(text_of(file))
    except yaml.YAMLError as error:
        fail(f"{file} cannot be read: {logs.visible(str(error).splitlines()[0])}.", 2)
    if not isinstance(told, dict):
        fail(f"{file} is not a job; docs/schemas/job.json says how one looks.", 2)
    fields = {name: value for name, value in told.items() if name in JobDocument.model_fields and value is not None}
    words = {str(name): plain(value) for name, value in told.items() if name not in fields and value is not None}
    work = fields.get("work", {})
    return {**fields, "work": {**work, **words}} if words and isinstance(work, dict) else fields


def text_of(file: str) -> str:
    """What is in a file; ends the program when it cannot be read."""
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file} cannot be read: {error}.", 2)
