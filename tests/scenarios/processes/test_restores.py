"""A restore under real processes: ends keep the latest record, and operators accept the copy by a command."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from ledger.kernel.event_kind import EventKind
from tests.scenarios.processes.processes import PROGRAM, Nursery
from tests.scenarios.processes.test_ends import OVERDUE_S, copied, ends_in, running
from tests.support.stack import Town, town

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def file_of(place: Town) -> Path:
    """The file of a town's ledger."""
    return Path(str(place.db.url.database))


def backup(place: Town, copy: Path) -> None:
    """Copy the ledger as docs/operator/backup.md says."""
    with closing(sqlite3.connect(file_of(place))) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


async def restore(place: Town, copy: Path) -> None:
    """Put a copy in the ledger's place while no process works on it."""
    await place.db.close()
    for suffix in ("-wal", "-shm"):
        file_of(place).with_name(file_of(place).name + suffix).unlink(missing_ok=True)
    shutil.copy(copy, file_of(place))
    file_of(place).chmod(0o600)


def command(place: Town, *words: str) -> str:
    """Run the command line beside the process, as an operator does; returns what it prints."""
    done = subprocess.run(
        [PROGRAM, *words],
        env={**os.environ, **place.environment, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


async def test_an_extended_machine_outlives_a_restore_and_operators_accept_the_copy(
    sqlite_db_url: str, tmp_path: Path, processes: Nursery
) -> None:
    async with town(sqlite_db_url, tmp_path, processes, "vast", end_overdue_s=OVERDUE_S) as place:
        await place.start()
        await running(place)
        await ends_in(place, 12)
        backup(place, tmp_path / "copy.db")
        await ends_in(place, 120)
        await place.ask()  # The copy lacks this one.
        await copied(place, file_of(place).parent / "ends.json")
        await place.kill()
        await restore(place, tmp_path / "copy.db")
        await place.restart(20)
        await place.screens.posted("older than its epoch")
        assert len(place.alive()) == 1
        said = await asyncio.to_thread(command, place, "recover")
        assert "older than its epoch" in said
        assert "; the ledger had " in said
        assert "GPU Shopper buys again" in await asyncio.to_thread(command, place, "recover", "--accept")
        assert len(place.alive()) == 1
        kinds = [event.kind for event in (await place.books()).events]
        assert kinds.count(EventKind.LEDGER_OLDER) == kinds.count(EventKind.LEDGER_ACCEPTED) == 1
        assert kinds.count(EventKind.SESSION_END_RECORDED) == 1
