"""Check that a payload has the fields that Bolt takes for granted, so that Bolt does not fail on it.

Every type that this app listens to is checked as deep as Bolt reads it. Every other type is refused, because Bolt knows
old types whose fields it takes for granted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

#: The types that pass. A slash command has none.
_TAKEN: Final = frozenset({"block_actions", "view_submission", "view_closed", "event_callback", "url_verification"})
#: Fields in which Bolt reads an id: an object that has one, or the id itself.
_NAMED: Final = ("user", "team", "enterprise", "channel")
#: Fields in which Bolt reads the same again, one level deeper.
_NESTED: Final = ("event", "message", "previous_message", "item", "assistant_thread", "container", "function_data")
#: Lists of objects.
_LISTS: Final = ("authorizations", "response_urls")
#: What Slack sends is three levels deep; Bolt follows any depth until the interpreter gives up.
_DEEPEST: Final = 6
#: Type → the object that must be there, and the texts that it must have.
_NEEDED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "view_submission": ("view", ("type", "callback_id")),
    "view_closed": ("view", ("type", "callback_id")),
    "event_callback": ("event", ("type",)),
}


def problem(body: Mapping[str, Any]) -> str:
    """Describe what is malformed in an interaction or event; empty when nothing is. Slash commands always pass."""
    if not isinstance(body.get("view", {}), Mapping):
        return "view is no object"  # Bolt looks into it wherever it stands, whatever the type.
    kind = body.get("type")
    if kind is None:
        return "" if all(isinstance(value, str) for value in body.values()) else "an object without a type"
    if not isinstance(kind, str) or kind not in _TAKEN:
        return "the type is none that this app listens to"
    if odd := _odd(body, _DEEPEST):
        return odd
    if "actions" in body or kind == "block_actions":
        actions = body.get("actions")
        if not actions or not _objects(actions) or not all(_texts(one, ("type", "action_id")) for one in actions):
            return "actions are no actions"
    name, texts = _NEEDED.get(kind, ("", ()))
    return f"{name} is incomplete" if name and not _texts(body.get(name), texts) else ""


def _odd(body: Mapping[str, Any], deeper: int) -> str:
    """Describe what is malformed in the parts that Bolt reads, here and below; at most `deeper` levels."""
    if deeper == 0:
        return "it is nested too deep"
    for name in _NAMED:
        if not isinstance(body.get(name), Mapping | str | None):
            return f"{name} is no object"
    below: list[Mapping[str, Any]] = []
    for name in _NESTED:
        part = body.get(name)
        if not isinstance(part, Mapping | None):
            return f"{name} is no object"
        below += [part] if part is not None else []
    for name in _LISTS:
        parts = body.get(name, ())
        if not _objects(parts):
            return f"{name} are no objects"
        below += parts
    return next((odd for part in below if (odd := _odd(part, deeper - 1))), "")


def _objects(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(one, Mapping) for one in value)


def _texts(value: Any, names: tuple[str, ...]) -> bool:
    return isinstance(value, Mapping) and all(isinstance(value.get(name), str) for name in names)
