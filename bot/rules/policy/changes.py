"""Say in sentences what an edit of the policy changes, so that operators see who may spend what now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any, Final

from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import listed

#: Settings whose values may hold commands and addresses of a team: only their names are said.
_NAMES_ONLY: Final = frozenset({"presets", "instance_profiles"})

#: A Slack user as a policy names one; with its kind in front a message mentions them.
_SLACK_USER: Final = re.compile(r"[UW][A-Z0-9]{4,20}")


def changes(before: Policy, after: Policy) -> tuple[str, ...]:
    """Return one sentence for each setting that differs. The settings about approvals come first."""
    pairs = ((item.name, getattr(before, item.name), getattr(after, item.name)) for item in fields(Policy))
    return tuple(_sentence(name, old, new) for name, old, new in pairs if old != new)


def _sentence(name: str, old: Any, new: Any) -> str:
    if isinstance(new, Mapping):
        return f"{name}: {_joined(_of_table(old, new, with_values=name not in _NAMES_ONLY))}."
    if isinstance(new, tuple):
        return f"{name}: {_joined(_of_list(old, new))}."
    return f"{name}: {_text(new)} instead of {_text(old)}."


def _of_list(old: tuple[Any, ...], new: tuple[Any, ...]) -> Iterator[str]:
    yield from _group("adds", (_text(value) for value in new if value not in old))
    yield from _group("removes", (_text(value) for value in old if value not in new))
    if set(map(_text, old)) == set(map(_text, new)):
        yield f"the order is {_all(map(_text, new))}"


def _of_table(old: Mapping[str, Any], new: Mapping[str, Any], *, with_values: bool) -> Iterator[str]:
    def entry(key: str) -> str:
        return f"{key} ({_text(new[key])})" if with_values else key

    def change(key: str) -> str:
        return f"{key} ({_text(new[key])} instead of {_text(old[key])})" if with_values else key

    yield from _group("adds", (entry(key) for key in new if key not in old))
    yield from _group("changes", (change(key) for key in new if key in old and new[key] != old[key]))
    yield from _group("removes", (key for key in old if key not in new))


def _group(verb: str, texts: Iterable[str]) -> Iterator[str]:
    if all_of_them := _all(texts):
        yield f"{verb} {all_of_them}"


def _all(texts: Iterable[str]) -> str:
    return ", ".join(texts)


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(parts)


def _text(value: Any) -> str:
    """Write a value as people read it in a policy file; two names of a person as the same one."""
    match value:
        case None | "":
            return "none"
        case bool():
            return "on" if value else "off"
        case Decimal():
            return f"{value:f}"
        case tuple():
            return listed(map(_text, value)) or "none"
        case Mapping():
            return _all(f"{key} {_text(item)}" for key, item in value.items()) or "none"
        case _ if is_dataclass(value):
            set_here = ((item.name, getattr(value, item.name)) for item in fields(value))
            return _all(f"{name} {_text(item)}" for name, item in set_here if item not in (None, "", ()))
        case _:
            return f"slack:{value}" if _SLACK_USER.fullmatch(str(value)) else str(value)
