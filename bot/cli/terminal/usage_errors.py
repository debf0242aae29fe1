"""Say what is wrong with a command line in one sentence, and where its help is; loaded only when one is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from bot.rules.values.bad_word import nearest

#: Words that people bring from Slack or from other tools, and the command that does it here.
SAME_AS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("list", "ls", "ps"), "sessions"),
        **dict.fromkeys(("status", "show"), "session ID"),
        **dict.fromkeys(("connect", "shell"), "ssh ID"),
        **dict.fromkeys(("copy", "cp", "sftp"), "scp"),
        **dict.fromkeys(("terminate", "end", "down", "destroy", "kill"), "shutdown ID"),
        **dict.fromkeys(("launch", "up", "create", "rent"), "provision"),
        "key": "ssh-key",
        "login": "config",
    }
)

#: An argument → where a person finds one.
WHERE_LISTED: Mapping[str, str] = MappingProxyType(
    {
        "REQUEST": " `gpu-shopper requests --waiting` lists those that can be approved.",
        "SESSION": " `gpu-shopper sessions` lists them.",
        "ORPHAN": " `gpu-shopper orphans list` lists them.",
        "BILL": " `gpu-shopper bills list` lists them.",
        "WEBHOOK": " `gpu-shopper webhooks list` lists them.",
    }
)

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


def unknown(typed: str, commands: Iterable[str]) -> str:
    """Answer a command that does not exist: the one that is meant or spelt most like it, then where all of them are."""
    guess = _did_you_mean("gpu-shopper", SAME_AS.get(typed) or nearest(typed, commands))
    return f'{guess}There is no command "{typed[:40]}". Run `gpu-shopper --help` for all commands.'


def _did_you_mean(path: str, name: str) -> str:
    return f"Did you mean `{path} {name}`? " if name else ""


def _problem(error: Any) -> str:
    kind, text = type(error).__name__, str(error.message)
    if kind == "NoSuchOption":
        known = [name for one in error.ctx.command.params for name in one.opts] if error.ctx else []
        near = nearest(error.option_name, known)
        guess = f"Did you mean {near}? " if near else ""
        return f"{guess}There is no option {error.option_name}."
    if extra := re.match(r"Got unexpected extra argument(?:\(s\)|s)?\s*\((.*)\)", text):
        return f'This command takes no "{extra[1]}".'
    if found := re.match(r"No such command '(.*?)'", text):
        listed = list(error.ctx.command.commands) if error.ctx else []
        guess = _did_you_mean(error.ctx.command_path if error.ctx else "", nearest(found[1], listed))
        return f'{guess}There is no command "{found[1][:40]}" here; there are {", ".join(listed)}.'
    name = _name(error)
    if kind == "MissingParameter":
        return f"{name} is missing.{WHERE_LISTED.get(name, '')}"
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
