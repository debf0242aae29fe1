"""Say what is wrong with a command line in one sentence, and where its help is; loaded only when one is wrong."""

from __future__ import annotations

import difflib
import re
from typing import Any

#: The validator's text → ours, to follow the option's name.
WRONG_VALUES = (
    (r"valid integer", "must be a whole number"),
    (r"valid (number|float)", "must be a number"),
    (r"greater than or equal to (\S+)", r"must be at least \1"),
    (r"less than or equal to (\S+)", r"must be at most \1"),
)


def worded(error: Any) -> str:
    """Return the sentence for a wrong option, a missing word or one too many."""
    path = error.ctx.command_path if error.ctx else "gpu-shopper"
    return f"{_problem(error)} Run `{path} --help`."


def _problem(error: Any) -> str:
    kind, text = type(error).__name__, str(error.message)
    if kind == "NoSuchOption":
        known = [name for one in error.ctx.command.params for name in one.opts] if error.ctx else []
        near = difflib.get_close_matches(error.option_name, known, n=1)
        guess = f"Did you mean {near[0]}? " if near else ""
        return f"{guess}There is no option {error.option_name}."
    if extra := re.match(r"Got unexpected extra argument(?:\(s\)|s)?\s*\((.*)\)", text):
        return f'This command takes no "{extra[1]}".'
    if unknown := re.match(r"No such command '(.*?)'", text):
        listed = list(error.ctx.command.commands) if error.ctx else []
        near = difflib.get_close_matches(unknown[1], listed, n=1)
        guess = f"Did you mean `{error.ctx.command_path} {near[0]}`? " if near else ""
        return f'{guess}There is no command "{unknown[1][:40]}" here; there are {", ".join(listed)}.'
    name = _name(error)
    if kind == "MissingParameter":
        return f"{name} is missing."
    for pattern, said in WRONG_VALUES:
        if found := re.search(rf"Input should be .*?{pattern}", text):
            return f"{name} {found.expand(said)}."
    return text if text.endswith((".", "?")) else f"{text}."


def _name(error: Any) -> str:
    """Return how a person writes the option or word: `--most`, REQUEST."""
    param = getattr(error, "param", None)
    if param is None:
        return "A value"
    if param.param_type_name == "option":
        return str(max(param.opts, key=len))
    return str(param.metavar or param.name).strip("[].").upper()
