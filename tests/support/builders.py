"""Which statements the code under test sends to the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine


@contextmanager
def asked() -> Iterator[list[str]]:
    """The tables that are read or written meanwhile, statement by statement."""
    said: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        words = statement.split()
        if words[0] in ("SELECT", "UPDATE", "INSERT", "DELETE"):
            said.append(words[words.index("FROM") + 1] if "FROM" in words else words[1 if words[0] == "UPDATE" else 2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(Engine, "before_cursor_execute", note)
