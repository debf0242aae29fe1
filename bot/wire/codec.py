"""Write dataclasses as JSON, and read them back by the types and limits of their fields.

A field that has its default is not written: an older reader may refuse a field that it does not know. A reader here
ignores fields that it does not know.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
#: Stands for a value that is not what its field says.
_WRONG = object()
#: Reads a value; with True, fields of objects in it that are wrong count as left out.
Reader = Callable[[Any, bool], Any]


@dataclass(frozen=True)
class ValueLimits:
    """What a value may be; what is None has no limit."""

    ge: int | None = None
    le: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    decimal_places: int | None = None
    max_digits: int | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Return those that are set."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def check(self, value: Any) -> Any:
        """Return a value that is within them. Raises ValueError."""
        if self.ge is not None and value < self.ge:
            raise ValueError(f"must be at least {self.ge}")
        if self.le is not None and value > self.le:
            raise ValueError(f"must be at most {self.le}")
        if self.max_length is not None and len(value) > self.max_length:
            raise ValueError(f"is longer than {self.max_length}")
        if self.pattern is not None and not re.fullmatch(self.pattern, value):
            raise ValueError("has the wrong form")
        if self.decimal_places is not None and self.max_digits is not None:
            self._check_digits(value)
        return value

    def _check_digits(self, value: Decimal) -> None:
        exponent, places = value.as_tuple().exponent, self.decimal_places or 0
        if not isinstance(exponent, int) or -exponent > places:
            raise ValueError(f"must have no more than {places} decimal places")
        if value.adjusted() >= (self.max_digits or 0) - places:
            raise ValueError(
                f"must have no more than {(self.max_digits or 0) - places} digits before the decimal point"
            )


def spec(
    about: str, default: Any = MISSING, *, always: bool = False, hidden: bool = False, examples: list[Any] | None = None
) -> Any:
    """Describe a field. One that is written `always` may be missing where it is read; a `hidden` one is no `repr`'s."""
    metadata = {"about": about, "always": always, "examples": examples}
    return field(default=default, repr=not hidden, metadata=metadata)


def to_json(value: Any, *, is_whole: bool = False) -> Any:
    """Return a value, with the dataclasses in it, as JSON keeps it; with `is_whole`, also the defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        content = [(field, getattr(value, field.name)) for field in fields(value)]
        kept = [(field, part) for field, part in content if is_whole or _is_written(field, part)]
        return {field.name: to_json(part, is_whole=is_whole) for field, part in kept}
    if isinstance(value, dict):
        return {str(name): to_json(part, is_whole=is_whole) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(part, is_whole=is_whole) for part in value]
    if isinstance(value, datetime):
        text = value.isoformat()
        return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
    if isinstance(value, Decimal):
        return str(value)  # A number of JSON may lose digits where it is read.
    return value.value if isinstance(value, Enum) else value


def _is_written(field: Field[Any], value: Any) -> bool:
    return bool(field.metadata.get("always")) or value != field.default


def from_json(kind: type[T], value: object, *, is_lenient: bool = False) -> T:
    """Read a dataclass. With `is_lenient`, a field that is wrong counts as left out.

    Raises ValueError for what is no such object, and for one without a field that must be there.
    """
    right = right_fields(kind, value, is_lenient=is_lenient)
    if missing := [field.name for field in fields(kind) if field.default is MISSING and field.name not in right]:  # type: ignore[arg-type] # A dataclass.
        raise ValueError(f"{missing[0]} is missing")
    return kind(**right)


def right_fields(kind: Any, value: object, *, is_lenient: bool = True) -> dict[str, Any]:
    """Return the fields of a dataclass that are there and right, by their names. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("must be an object")  # noqa: TRY004 # Callers catch one kind of error.
    read = {name: _tried(reader, name, value[name], is_lenient) for name, reader in _readers(kind) if name in value}
    return {name: part for name, part in read.items() if part is not _WRONG}


def _tried(reader: Reader, name: str, value: object, is_lenient: bool) -> Any:
    try:
        return reader(value, is_lenient)
    except (ValueError, TypeError, ArithmeticError) as error:
        if is_lenient:
            return _WRONG
        raise ValueError(f"{name} {error}") from None


@lru_cache
def _readers(kind: Any) -> tuple[tuple[str, Reader], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field.name, _reader(hints[field.name])) for field in fields(kind))


def _reader(hint: Any) -> Reader:
    """Return what reads a value of this type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner, limits = _reader(arguments[0]), arguments[1]
        return lambda value, lenient: limits.check(inner(value, lenient))
    if origin is Literal:
        return lambda value, _: arguments[arguments.index(value)]
    if origin in (Union, UnionType):
        inner = _reader(arguments[0])
        return lambda value, lenient: None if value is None else inner(value, lenient)
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin in (dict, Mapping):
        inner = _reader(arguments[1])
        return lambda value, lenient: {str(name): inner(part, lenient) for name, part in _of(dict, value).items()}
    if is_dataclass(hint):
        return lambda value, lenient: from_json(hint, value, is_lenient=lenient)  # type: ignore[arg-type] # It is a class.
    return _PLAIN.get(hint) or (lambda value, _: hint(value))  # What is left is an Enum.


def _tuple_reader(arguments: tuple[Any, ...]) -> Reader:
    if arguments[-1] is Ellipsis:
        inner = _reader(arguments[0])
        return lambda value, lenient: tuple(inner(part, lenient) for part in _of(list, value))
    readers = [_reader(argument) for argument in arguments]
    return lambda value, lenient: tuple(
        read(part, lenient) for read, part in zip(readers, _of(list, value), strict=True)
    )


def _of(kind: type[T], value: Any) -> T:
    """Return a value of exactly this type: `true` is no number."""
    if type(value) is not kind:
        raise ValueError(f"must be {kind.__name__}")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("must be a number")
    return float(value)


def _decimal(value: Any) -> Decimal:
    return Decimal(value) if type(value) is str else Decimal(str(_number(value)))


def _time(value: Any) -> datetime:
    text = _of(str, value)
    if len(text) > 40 or text[10:11] != "T":  # Python reads more forms than it writes.
        raise ValueError("must be a time")
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    offset = at.utcoffset()
    if offset is None or offset.total_seconds() % 60:
        raise ValueError("must have a time zone of whole minutes")
    return at


_PLAIN: Mapping[Any, Reader] = {
    Any: lambda value, _: value,
    bool: lambda value, _: _of(bool, value),
    int: lambda value, _: _of(int, value),
    float: lambda value, _: _number(value),
    str: lambda value, _: _of(str, value),
    Decimal: lambda value, _: _decimal(value),
    datetime: lambda value, _: _time(value),
}
