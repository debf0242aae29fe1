"""Say where the ledger and the files of one deployment are, and what is backed up of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bot.services.backups.archive import ENDS, EPOCH
from bot.services.runtime import ends_copy, epoch
from ledger.engine.db import Database
from ledger.engine.postgres_copy import ServerState, server_state

#: Files of the data folder that are records of what the ledger knew last → how a backup names them.
RECORDS: Mapping[str, str] = MappingProxyType({ENDS: ends_copy.NAME, EPOCH: epoch.NAME})


class BackupRefused(RuntimeError):
    """Say in one sentence why there is no backup, or nothing is restored, and what to do."""


class LedgerServer(NamedTuple):
    """Where a PostgreSQL server is, and its state."""

    url: Any
    state: ServerState


@dataclass(frozen=True, slots=True)
class Installation:
    """Where one deployment's ledger and files are. `deployment` and `key_hex` are None where there are none yet.

    `ledger` is the SQLite file, None on PostgreSQL. `url` may contain a password.
    """

    url: str = field(repr=False)
    ledger: Path | None
    folder: Path
    policy: Path | None = None
    deployment: str | None = None
    key_hex: str | None = field(default=None, repr=False)

    async def server(self) -> LedgerServer | None:
        """Return the PostgreSQL server of the ledger and its state; None for SQLite."""
        if self.ledger is not None:
            return None
        db = Database(self.url)
        try:
            async with db.read() as tx:
                return LedgerServer(db.url, await server_state(tx))
        finally:
            await db.close()
