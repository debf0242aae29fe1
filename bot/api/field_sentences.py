"""Say in words what is wrong with a field of a call: no validator's text, and no regular expression."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

#: The validator's name for a problem → the predicate of its sentence; the names in braces are facts of the problem.
PREDICATES: Mapping[str, str] = MappingProxyType(
    {
        "missing": "is missing",
        "extra_forbidden": "is no field here",
        "unexpected_keyword_argument": "is no field here",
        "none_required": "must be left out",
        "string_type": "must be text",
        "string_pattern_mismatch": "has the wrong form; the reference at /docs shows an example",
        "string_too_short": "needs at least {min_length} characters",
        "string_too_long": "may have at most {max_length} characters",
        "too_short": "needs at least {min_length} entries",
        "too_long": "may have at most {max_length} entries",
        "enum": "must be {expected}",
        "literal_error": "must be {expected}",
        "bool_type": "must be true or false",
        "bool_parsing": "must be true or false",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_from_float": "must be a whole number",
        "int_parsing_size": "is too large",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "finite_number": "must be a number",
        "decimal_type": "must be a number",
        "decimal_parsing": "must be a number",
        "decimal_max_digits": "may have at most {max_digits} digits",
        "decimal_max_places": "may have at most {decimal_places} decimals",
        "decimal_whole_digits": "may have at most {whole_digits} digits before the point",
        "greater_than": "must be more than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        "list_type": "must be a list",
        "tuple_type": "must be a list",
        "dict_type": "must be an object",
        "model_type": "must be an object",
        "dataclass_type": "must be an object",
        "model_attributes_type": "must be an object",
        "json_invalid": "is not JSON",
        "date_type": "must be a day, such as 2026-03-01",
        "date_parsing": "must be a day, such as 2026-03-01",
        "date_from_datetime_parsing": "must be a day, such as 2026-03-01",
        "datetime_type": "must be a time with its zone, such as 2026-03-01T10:00:00Z",
        "datetime_parsing": "must be a time with its zone, such as 2026-03-01T10:00:00Z",
        "datetime_from_date_parsing": "must be a time with its zone, such as 2026-03-01T10:00:00Z",
        "timezone_aware": "must be a time with its zone, such as 2026-03-01T10:00:00Z",
    }
)
#: For a problem that has no line above.
OTHERWISE = "has a wrong value"


def predicate(error: Mapping[str, Any]) -> str:
    """Return what is wrong, to follow the field's name; empty for a sentence that our own validator wrote."""
    if error["type"] in ("value_error", "assertion_error"):
        return ""
    try:
        return PREDICATES.get(error["type"], OTHERWISE).format_map(error.get("ctx") or {})
    except KeyError:
        return OTHERWISE


def own_sentence(error: Mapping[str, Any]) -> str:
    """Return the sentence of our own validator, without the prefix that the library adds."""
    return f"{error['msg'].removeprefix('Value error, ').removeprefix('Assertion failed, ').rstrip('.')}."
