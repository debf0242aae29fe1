"""When rows of each kind are due: one cheap look at the ledger, asked before every jump of the clock."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import text

from ledger.engine.db import Database

#: The earliest row of each kind and state that is due and free, and at which clouds something may be. What is over is
#: not looked at, so that the last day of a month costs no more than its first.
QUERY = """
SELECT 'Request', state, min({free_at}) FROM requests {by_due} GROUP BY state
UNION ALL SELECT 'Instance', state, min({free_at}) FROM instances {by_due} GROUP BY state
UNION ALL SELECT 'Session', state, min({free_at}) FROM sessions {by_due} GROUP BY state
UNION ALL SELECT 'Notification', state, min({free_at}) FROM notifications {by_due} GROUP BY state
UNION ALL SELECT 'held', cloud, min(created_at) FROM instances {only_open} GROUP BY cloud
UNION ALL SELECT 'held', cloud, min(first_seen_at) FROM orphans WHERE ended_at IS NULL GROUP BY cloud
"""
_OPEN = "WHERE state IN ('live', 'ready', 'sending', 'stopped', 'terminating', 'unknown')"
#: SQLite is told which index to take; its own choice reads whole tables.
ON_SQLITE = QUERY.format(
    by_due="WHERE due_at > ''",
    free_at="max(due_at, coalesce(claim_until, due_at))",
    only_open=f"INDEXED BY uq_instances_open_grant {_OPEN}",
)
ON_POSTGRES = QUERY.format(by_due="WHERE due_at IS NOT NULL", free_at="greatest(due_at, claim_until)", only_open=_OPEN)

#: By kind and state, or by "held" and cloud.
Due = dict[tuple[str, str], datetime]


class DueRows:
    """On SQLite a connection of its own, which knows whether anything was written since the last look."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._raw: sqlite3.Connection | None = None
        if db.dialect == "sqlite":
            self._raw = sqlite3.connect(str(db.url.database), isolation_level=None)
        self._version: Any = None
        self._found: Due = {}

    async def look(self) -> Due:
        """What is due when."""
        if self._raw is None:
            async with self._db.read() as tx:
                rows: Any = (await tx.execute(text(ON_POSTGRES))).all()
            self._found = {(kind, state): at for kind, state, at in rows}
            return self._found
        (version,) = self._raw.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            rows = self._raw.execute(ON_SQLITE).fetchall()
            self._found = {(kind, state): datetime.fromisoformat(at).replace(tzinfo=UTC) for kind, state, at in rows}
        return self._found

    def close(self) -> None:
        """Let the file go."""
        if self._raw is not None:
            self._raw.close()
