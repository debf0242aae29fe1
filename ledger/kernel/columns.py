"""Define column types: micro-dollars, aware UTC, enums, jobs, and text that both databases take.

PostgreSQL refuses a NUL character and half of a surrogate pair, in text and in JSONB, where SQLite stores them. Foreign
text (a message, a cloud's status) may hold both, and one such character must not make a row unwritable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from typing import Any, TypeVar

from sqlalchemy import JSON, BigInteger, DateTime, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from ledger.kernel.money import from_micro, to_micro
from ledger.kernel.stored_job import StoredJob

E = TypeVar("E", bound=StrEnum)

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_AS_TEXT = json.JSONEncoder(ensure_ascii=False).encode
#: What the text of a JSON value has in it when something in the value may not be stored. It may also be harmless.
_SUSPECT = re.compile(r"[\ud800-\udfff]|\\u0000|NaN|Infinity")


def storable(text: str) -> str:
    """Replace every character in `text` that PostgreSQL refuses by U+FFFD."""
    # Nearly all text is plain, which is seen sooner than a pattern begins.
    return text if text.isascii() and "\x00" not in text else _UNSTORABLE.sub("\ufffd", text)


def storable_json(value: Any) -> Any:
    """Make every text in a JSON value storable, keys too; NaN and infinities become text, because they are no JSON.

    A value in which nothing is wrong is returned as it is. TypeError for what is no JSON, RecursionError for what is
    nested without end.
    """
    return value if _SUSPECT.search(_AS_TEXT(value)) is None else _mended(value)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {storable(k) if isinstance(k, str) else k: _mended(v) for k, v in value.items()}
    return [_mended(v) for v in value] if isinstance(value, list | tuple) else value


#: What makes the value of a column for people's code, and for the database. The base class calls two functions for each
#: value; rows of a whole fleet have hundreds of thousands, so the commonest types have one of their own.
Read = Callable[[Any], Any] | None
Bind = Callable[[Any], Any] | None


def _bound_text(value: Any) -> str | None:
    return None if value is None else storable(value)


class SafeText(TypeDecorator[str]):
    """Store text of any length that may come from outside."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return _bound_text(value)

    def bind_processor(self, dialect: Dialect) -> Bind:
        return _bound_text


class SafeString(TypeDecorator[str]):
    """Store text of at most `length` characters. PostgreSQL refuses a longer one; SQLite does not check."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return _bound_text(value)

    def bind_processor(self, dialect: Dialect) -> Bind:
        return _bound_text


#: JSONB on PostgreSQL, text on SQLite: for values that `storable_json` has seen already.
CHECKED_JSON: TypeEngine[Any] = JSON().with_variant(JSONB(), "postgresql")


class Json(TypeDecorator[Any]):
    """Store a JSON value, made storable as it is bound."""

    impl = CHECKED_JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return storable_json(value)


class JobJson(TypeDecorator[StoredJob]):
    """Store the JSON of a job, made storable as it is bound, and wrap it as it is read: nothing is parsed here."""

    impl = CHECKED_JSON
    cache_ok = True

    def process_bind_param(self, value: StoredJob | None, dialect: Dialect) -> Any:
        return None if value is None else storable_json(value.json)

    def process_result_value(self, value: Any, dialect: Dialect) -> StoredJob | None:
        return None if value is None else StoredJob(value)


class MicroUsd(TypeDecorator[Decimal]):
    """Store `Decimal` dollars as integer micro-dollars. A float is refused."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> int | None:
        if value is None:
            return None
        if not isinstance(value, Decimal):
            raise TypeError(f"money must be a Decimal, not {type(value).__name__}")
        return to_micro(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        return None if value is None else from_micro(int(value))

    def result_processor(self, dialect: Dialect, coltype: object) -> Read:
        return lambda value: None if value is None else from_micro(int(value))


class UtcDateTime(TypeDecorator[datetime]):
    """Store aware UTC times and read them back. A naive datetime is refused, never guessed."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise TypeError("a stored time must be aware UTC")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def result_processor(self, dialect: Dialect, coltype: object) -> Read:
        if dialect.name != "sqlite":
            return super().result_processor(dialect, coltype)
        parsed = datetime.fromisoformat
        return lambda value: None if value is None else parsed(f"{value}+00:00")


class EnumText(TypeDecorator[E]):
    """Store a `StrEnum` as its text, so that a new member needs no change of type in the database."""

    impl = String
    cache_ok = True

    def __init__(self, enum: type[E], length: int = 24) -> None:
        super().__init__(length)
        self.enum, self.length = enum, length

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:
        return None if value is None else str(self.enum(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:
        return None if value is None else self.enum(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Read:
        enum, members = self.enum, {member.value: member for member in self.enum}
        return lambda value: None if value is None else members.get(value) or enum(value)
