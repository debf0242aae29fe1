"""Turn simple values into the `state.values` that Slack sends for a filled form, with Slack's own checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from bot.practice.messages import elements_of, flat_blocks
from bot.practice.model import Json

REQUIRED: Final = "Please complete this required field."
_ONE_OPTION: Final = ("static_select", "radio_buttons")
_MANY_OPTIONS: Final = ("multi_static_select", "checkboxes")
#: Kind of element → where its entry in `state.values` has its value, and where the element has its initial one.
_NAMED: Final = {
    **dict.fromkeys(_ONE_OPTION, ("selected_option", "initial_option")),
    **dict.fromkeys(_MANY_OPTIONS, ("selected_options", "initial_options")),
    "plain_text_input": ("value", "initial_value"),
    "number_input": ("value", "initial_value"),
    "datepicker": ("selected_date", "initial_date"),
    "timepicker": ("selected_time", "initial_time"),
    "users_select": ("selected_user", "initial_user"),
    "multi_users_select": ("selected_users", "initial_users"),
    "conversations_select": ("selected_conversation", "initial_conversation"),
    "channels_select": ("selected_channel", "initial_channel"),
}


class NoSuchField(LookupError):
    """A value was given for a field that does not exist."""


def fill_in(blocks: Sequence[Json], given: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[Json, dict[str, str]]:
    """Return `state.values`, and the errors that Slack itself shows, by block_id.

    `given` is keyed by block_id, action_id or label. `known` is the state so far; without it the initial values apply.
    Raises `NoSuchField` for a key without a field, LookupError for an option that does not exist.
    """
    left = dict(given)
    values: Json = {}
    complaints: dict[str, str] = {}
    for block in flat_blocks(list(blocks)):
        for element in elements_of(block):
            if not _has_state(element):
                continue
            block_id, action_id = str(block["block_id"]), str(element["action_id"])
            key = _key(block, element, left)
            if key is not None:
                entry = entry_for(element, left.pop(key))
            else:
                entry = (known.get(block_id) or {}).get(action_id) or _initial(element)
            values.setdefault(block_id, {})[action_id] = entry
            if block.get("type") == "input" and (complaint := _complaint(block, element, entry)):
                complaints[block_id] = complaint
    if left:
        raise NoSuchField(
            f"no field is called {', '.join(map(repr, left))}; there are {', '.join(field_names(blocks))}"
        )
    return values, complaints


def field_names(blocks: Sequence[Json]) -> list[str]:
    """List the action_ids of everything that can be filled in."""
    found = [e for block in flat_blocks(list(blocks)) for e in elements_of(block) if _has_state(e)]
    return [str(element.get("action_id")) for element in found]


def _has_state(element: Json) -> bool:
    return element.get("type") in _NAMED


def _key(block: Json, element: Json, given: Mapping[str, Any]) -> str | None:
    label = str((block.get("label") or {}).get("text", ""))
    names = (str(element.get("action_id")), str(block.get("block_id")), label)
    return next((name for name in names if name in given), None)


def all_options(element: Json) -> list[Json]:
    """List the options of a menu, those of its groups too."""
    grouped = [option for group in element.get("option_groups", ()) for option in group.get("options", ())]
    return [*element.get("options", ()), *grouped]


def find_option(element: Json, wanted: object) -> Json:
    """Find the option with that value or those words. LookupError lists the existing values."""
    options = all_options(element)
    for option in options:
        if str(wanted) in {option.get("value"), (option.get("text") or {}).get("text")}:
            return option
    raise LookupError(f"no option {wanted!r}; there are {', '.join(str(o.get('value')) for o in options)}")


def entry_for(element: Json, value: Any) -> Json:
    """Return one element's entry in `state.values` for a value as a person would say it. None empties the field."""
    kind = str(element["type"])
    name, _ = _NAMED[kind]
    if kind in _ONE_OPTION:
        return {"type": kind, name: None if value in (None, "") else find_option(element, value)}
    if kind in _MANY_OPTIONS:
        wanted = [] if value is None else [value] if isinstance(value, str) else list(value)
        return {"type": kind, name: [find_option(element, item) for item in wanted]}
    if kind == "multi_users_select":
        return {"type": kind, name: list(value or ())}
    return {"type": kind, name: None if value in (None, "") else str(value)}


def _initial(element: Json) -> Json:
    kind = str(element["type"])
    name, initial = _NAMED[kind]
    empty: Any = [] if kind in (*_MANY_OPTIONS, "multi_users_select") else None
    return {"type": kind, name: element.get(initial, empty)}


def _complaint(block: Json, element: Json, entry: Json) -> str | None:
    value = entry[_NAMED[str(element["type"])][0]]
    if not value:
        return None if block.get("optional") else REQUIRED
    kind = element["type"]
    if kind == "plain_text_input":
        return _length_complaint(element, str(value))
    if kind == "number_input":
        return _number_complaint(element, str(value))
    if kind == "datepicker" and not _is_date(str(value)):
        return "Please enter a date as YYYY-MM-DD."
    return None


def _length_complaint(element: Json, value: str) -> str | None:
    if len(value) < int(element.get("min_length") or 0):
        return f"Please enter at least {element['min_length']} characters."
    if len(value) > int(element.get("max_length") or 3000):
        return f"Please enter at most {element.get('max_length', 3000)} characters."
    return None


def _number_complaint(element: Json, value: str) -> str | None:
    try:
        number = Decimal(value)
    except InvalidOperation:
        return "Please enter a number."
    if not number.is_finite():
        return "Please enter a number."
    if not element.get("is_decimal_allowed") and number != number.to_integral_value():
        return "Please enter a whole number."
    if "min_value" in element and number < Decimal(element["min_value"]):
        return f"Please enter a number that is {element['min_value']} or more."
    if "max_value" in element and number > Decimal(element["max_value"]):
        return f"Please enter a number that is {element['max_value']} or less."
    return None


def _is_date(value: str) -> bool:
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True
