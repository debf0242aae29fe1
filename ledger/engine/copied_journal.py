"""Read what a copy of a ledger says of itself: its revision, its journal with the hashes, its newest position.

A copy is read by plain SQL, because its schema may be older or newer than the models. Both databases' copies come as a
SQLite file: of a PostgreSQL dump, `postgres_copy` writes these few tables into one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

#: The tables that are read here, with their columns; an older ledger lacks some.
TABLES = {
    "alembic_version": ("version_num", "readable_from"),
    "events": ("id", "at", "actor", "subject", "kind", "before", "after", "reason", "data"),
    "event_hashes": ("event_id", "subject", "number", "hash"),
    "event_order": ("position", "event_id"),
}
#: Which of them are numbers; the others are text.
NUMBERS = frozenset({"number", "position"})
_CHAINS = """
SELECT h.subject, h.number, h.hash, e.id, e.at, e.actor, e.subject, e.kind, e.before, e.after, e.reason, e.data
FROM event_hashes AS h LEFT JOIN events AS e ON e.id = h.event_id ORDER BY h.subject, h.number
"""
_NEWEST = """
SELECT o.position, h.hash FROM event_order AS o JOIN event_hashes AS h ON h.event_id = o.event_id
ORDER BY o.position DESC LIMIT 1
"""
#: Events that were put in below the last hash afterwards.
_PUT_IN = """
SELECT count(*) FROM event_order AS o LEFT JOIN event_hashes AS h ON h.event_id = o.event_id
WHERE h.event_id IS NULL AND o.position <= ?
"""


class NoJournal(RuntimeError):
    """Say that a copy has none of the tables of a ledger."""


class HashedEvent(NamedTuple):
    """Hold one event of a subject's chain as it was hashed; None where its row is missing."""

    subject: str
    hash: str
    content: dict[str, Any] | None


class NewestHash(NamedTuple):
    """Hold the position and the hash of the newest event that has one; 0 and "" while none has."""

    position: int
    hash: str


class CopiedJournal:
    """Read one copy. Close it at the end, or use it in a `with` statement."""

    def __init__(self, copy: Path) -> None:
        self._connection = sqlite3.connect(copy.absolute().as_uri() + "?mode=rw", uri=True)
        tables = {name for (name,) in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if missing := set(TABLES) - tables:
            self._connection.close()
            raise NoJournal(f"no {min(missing)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def schema(self) -> tuple[str, str]:
        """Return the revision of the copy, and from which one on code can work on it; "" where it says none."""
        with closing(self._connection.cursor()) as cursor:
            row = cursor.execute("SELECT * FROM alembic_version").fetchone() or ()
            values = dict(zip((column[0] for column in cursor.description), row, strict=False))
        return str(values.get("version_num") or ""), str(values.get("readable_from") or "")

    def newest(self) -> NewestHash:
        """Return how far the journal of the copy is hashed."""
        return NewestHash(*next(self._rows(_NEWEST), (0, "")))

    def put_in(self) -> int:
        """Count the events that somebody added below the last hash afterwards."""
        return int(next(self._rows(_PUT_IN, self.newest().position))[0])

    def chains(self) -> Iterator[HashedEvent]:
        """Yield every event that has a hash, subject by subject, in the order of each chain."""
        for subject, _, stored, *event in self._rows(_CHAINS):
            content = dict(zip(TABLES["events"], event, strict=True))
            if content["id"] is None:
                yield HashedEvent(subject, stored, None)
                continue
            at = datetime.fromisoformat(content["at"])
            content["at"] = (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)).isoformat()
            content["data"] = json.loads(content["data"])
            yield HashedEvent(subject, stored, content)

    def _rows(self, query: str, *values: object) -> Iterator[Any]:
        with closing(self._connection.cursor()) as cursor:
            yield from cursor.execute(query, values)
