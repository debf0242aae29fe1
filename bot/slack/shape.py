"""The least that a payload must have so that Bolt, which trusts what it verified, does not stumble over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_OBJECTS: Final = ("user", "team", "enterprise", "channel", "container", "event", "message", "previous_message")
#: Type → the object that must be there, and the texts that it must have.
_NEEDED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "view_submission": ("view", ("type", "callback_id")),
    "view_closed": ("view", ("type", "callback_id")),
    "event_callback": ("event", ("type",)),
}


def problem(body: Mapping[str, Any]) -> str:
    """What is odd about an interaction or event, empty when nothing is. Slash commands are flat and always fine."""
    if not isinstance(body.get("view", {}), Mapping):
        return "view is no object"  # Bolt looks into it wherever it stands, whatever the type.
    kind = body.get("type")
    if kind is None:
        return "" if all(isinstance(value, str) for value in body.values()) else "an object without a type"
    if not isinstance(kind, str):
        return "the type is no text"
    for name in _OBJECTS:
        if not isinstance(body.get(name), Mapping | str | None):
            return f"{name} is no object"
    if not _objects(body.get("authorizations", ())):
        return "authorizations are no objects"
    if "actions" in body or kind == "block_actions":
        actions = body.get("actions")
        if not actions or not _objects(actions) or not all(_texts(one, ("type", "action_id")) for one in actions):
            return "actions are no actions"
    name, texts = _NEEDED.get(kind, ("", ()))
    return f"{name} is incomplete" if name and not _texts(body.get(name), texts) else ""


def _objects(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(one, Mapping) for one in value)


def _texts(value: Any, names: tuple[str, ...]) -> bool:
    return isinstance(value, Mapping) and all(isinstance(value.get(name), str) for name in names)
