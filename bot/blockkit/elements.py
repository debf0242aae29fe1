"""Check the interactive elements: buttons, menus, inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final

from bot.blockkit.checker import ID_MAX, PLAIN, Checker

BUTTON_TEXT_MAX: Final = 75
BUTTON_VALUE_MAX: Final = 2000
ACCESSIBILITY_MAX: Final = 75
OPTIONS_MAX: Final = 100
OPTION_TEXT_MAX: Final = 75
OPTION_VALUE_MAX: Final = 150
GROUPS_MAX: Final = 100
FEW_OPTIONS_MAX: Final = 10
OVERFLOW_MAX: Final = 5
PLACEHOLDER_MAX: Final = 150
INPUT_MAX_LENGTH: Final = 3000
IMAGE_ALT_MAX: Final = 2000

_TIME: Final = re.compile(r"^([01]\d|2[0-3]):[0-5]\d$")
_DATE: Final = re.compile(r"^\d{4}-\d{2}-\d{2}$")

Element = Mapping[str, Any]

SELECTS: Final = ("static_select", "users_select", "conversations_select", "channels_select")
MULTI_SELECTS: Final = ("multi_static_select", "multi_users_select")
PICKERS: Final = ("datepicker", "timepicker", "radio_buttons", "checkboxes")
TEXT_INPUTS: Final = ("plain_text_input", "number_input")
IN_ACTIONS: Final = ("button", "overflow", *SELECTS, *PICKERS)
IN_SECTION: Final = ("button", "overflow", "image", *SELECTS, *MULTI_SELECTS, *PICKERS)
IN_INPUT: Final = (*TEXT_INPUTS, *SELECTS, *MULTI_SELECTS, *PICKERS)


def check_element(check: Checker, value: Any, pointer: str, allowed: tuple[str, ...]) -> None:
    """Check one element, where only the types in `allowed` may be."""
    element = check.mapping(value, pointer)
    if element is None:
        return
    kind = element.get("type")
    if not isinstance(kind, str) or kind not in allowed:
        check.fail(f"unsupported element type: {kind}", f"{pointer}/type")
        return
    check.string(element.get("action_id"), f"{pointer}/action_id", ID_MAX)
    check.confirm(element.get("confirm"), f"{pointer}/confirm")
    _ELEMENTS[kind](check, element, pointer)


def _button(check: Checker, element: Element, at: str) -> None:
    check.text(element.get("text"), f"{at}/text", BUTTON_TEXT_MAX, only=PLAIN)
    check.string(element.get("value"), f"{at}/value", BUTTON_VALUE_MAX)
    check.choice(element.get("style"), f"{at}/style", ("primary", "danger"))
    check.string(element.get("accessibility_label"), f"{at}/accessibility_label", ACCESSIBILITY_MAX)
    if "url" in element:
        check.url(element["url"], f"{at}/url")


def _image(check: Checker, element: Element, at: str) -> None:
    check_image(check, element, at)


def check_image(check: Checker, element: Element, at: str) -> None:
    """Check an image's source and its text for people who do not see it."""
    check.string(element.get("alt_text"), f"{at}/alt_text", IMAGE_ALT_MAX, required=True)
    if "slack_file" in element:
        check.mapping(element["slack_file"], f"{at}/slack_file")
    else:
        check.url(element.get("image_url"), f"{at}/image_url", required=True)


def _option(check: Checker, value: Any, at: str, *, markup: bool) -> str | None:
    option = check.mapping(value, at)
    if option is None:
        return None
    check.text(option.get("text"), f"{at}/text", OPTION_TEXT_MAX, only=None if markup else PLAIN)
    check.string(option.get("value"), f"{at}/value", OPTION_VALUE_MAX, required=True)
    check.text(
        option.get("description"), f"{at}/description", OPTION_TEXT_MAX, only=None if markup else PLAIN, required=False
    )
    found = option.get("value")
    return found if isinstance(found, str) else None


def _options(check: Checker, element: Element, at: str, high: int, *, markup: bool = False) -> None:
    values: list[str | None] = []
    if "option_groups" in element:
        if "options" in element:
            check.fail("must have either options or option_groups", at)
        for group, where in check.items(element["option_groups"], f"{at}/option_groups", 1, GROUPS_MAX):
            found = check.mapping(group, where)
            if found is None:
                continue
            check.text(found.get("label"), f"{where}/label", OPTION_TEXT_MAX, only=PLAIN)
            for option, here in check.items(found.get("options"), f"{where}/options", 1, high):
                values.append(_option(check, option, here, markup=markup))
    else:
        for option, where in check.items(element.get("options"), f"{at}/options", 1, high):
            values.append(_option(check, option, where, markup=markup))
    _initial(check, element, at, values)


def _initial(check: Checker, element: Element, at: str, values: list[str | None]) -> None:
    # Slack refuses an initial choice that is not among the options.
    chosen = list(element.get("initial_options") or [])
    if "initial_option" in element:
        chosen.append(element["initial_option"])
    for option in chosen:
        if not isinstance(option, Mapping) or option.get("value") not in values:
            check.fail("initial option must be one of the options", at)


def _placeholder(check: Checker, element: Element, at: str) -> None:
    check.text(element.get("placeholder"), f"{at}/placeholder", PLACEHOLDER_MAX, only=PLAIN, required=False)


def _static(check: Checker, element: Element, at: str) -> None:
    _placeholder(check, element, at)
    _options(check, element, at, OPTIONS_MAX)
    check.number(element.get("max_selected_items"), f"{at}/max_selected_items", 1, OPTIONS_MAX)


def _few(check: Checker, element: Element, at: str) -> None:
    _options(check, element, at, FEW_OPTIONS_MAX, markup=True)


def _overflow(check: Checker, element: Element, at: str) -> None:
    _options(check, element, at, OVERFLOW_MAX)


def _text_input(check: Checker, element: Element, at: str) -> None:
    _placeholder(check, element, at)
    check.number(element.get("min_length"), f"{at}/min_length", 0, INPUT_MAX_LENGTH)
    check.number(element.get("max_length"), f"{at}/max_length", 1, INPUT_MAX_LENGTH)
    check.string(element.get("initial_value"), f"{at}/initial_value", INPUT_MAX_LENGTH, low=0)


def _number_input(check: Checker, element: Element, at: str) -> None:
    _placeholder(check, element, at)
    if not isinstance(element.get("is_decimal_allowed"), bool):
        check.fail("missing required field", f"{at}/is_decimal_allowed")
    for key in ("initial_value", "min_value", "max_value"):
        # Slack takes these numbers as strings.
        check.string(element.get(key), f"{at}/{key}", ID_MAX)


def _date(check: Checker, element: Element, at: str) -> None:
    _placeholder(check, element, at)
    value = element.get("initial_date")
    if value is not None and not _is_date(value):
        check.fail("must be a date as YYYY-MM-DD", f"{at}/initial_date")


def _is_date(value: Any) -> bool:
    if not isinstance(value, str) or not _DATE.match(value):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _time(check: Checker, element: Element, at: str) -> None:
    _placeholder(check, element, at)
    value = element.get("initial_time")
    if value is not None and not (isinstance(value, str) and _TIME.match(value)):
        check.fail("must be a time as HH:MM", f"{at}/initial_time")


_ELEMENTS: Final[Mapping[str, Callable[[Checker, Element, str], None]]] = {
    "button": _button,
    "image": _image,
    "static_select": _static,
    "multi_static_select": _static,
    "users_select": _placeholder,
    "multi_users_select": _placeholder,
    "conversations_select": _placeholder,
    "channels_select": _placeholder,
    "overflow": _overflow,
    "radio_buttons": _few,
    "checkboxes": _few,
    "datepicker": _date,
    "timepicker": _time,
    "plain_text_input": _text_input,
    "number_input": _number_input,
}
