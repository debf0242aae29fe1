"""A ledger on a disk that was read-only when it was opened takes writes again once the disk does."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from sqlalchemy import text

from ledger.engine.db import Database

REPOSITORY = Path(__file__).parents[3]
#: Opens a ledger that it may not write, then may again; prints what each write did.
SCRIPT = """
import asyncio, sys
from pathlib import Path
from sqlalchemy import text
from ledger.engine.db import Database
from tests.support.process_group import obey_modes

async def main(folder):
    obey_modes()
    paths = [*folder.iterdir(), folder]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    db = Database(f"sqlite+aiosqlite:///{folder / 'ledger.db'}")

    async def wrote():
        try:
            async with db.write() as tx:
                await tx.execute(text("INSERT INTO pairs VALUES (2)"))
        except Exception as error:
            return type(error).__name__
        return "wrote"

    async with db.read() as tx:
        print(await tx.scalar(text("SELECT count(*) FROM pairs")), await wrote())
    for path in reversed(paths):
        path.chmod(path.stat().st_mode | 0o200)
    print(await wrote())
    await db.reopen()
    print(await wrote())
    await db.close()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_connections_that_are_opened_anew_see_that_a_disk_can_be_written(tmp_path: Path) -> None:
    """SQLite's shared memory stays read-only in a process until its last connection is closed."""
    folder = tmp_path / "data"
    folder.mkdir()
    killed = "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
    killed += "c.execute('PRAGMA journal_mode=WAL'); c.execute('CREATE TABLE pairs (a)')\n"
    killed += "c.execute('INSERT INTO pairs VALUES (1)'); os.kill(os.getpid(), 9)\n"
    subprocess.run([sys.executable, "-c", killed, str(folder / "ledger.db")], check=False)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.split("\n")[:3] == ["1 OperationalError", "OperationalError", "wrote"], ran.stdout + ran.stderr
    with sqlite3.connect(folder / "ledger.db") as ledger:
        assert ledger.execute("SELECT a FROM pairs").fetchall() == [(1,), (2,)]
    ledger.close()


def open_files(path: Path) -> int:
    """How often this process has a file open."""
    links = (link for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    return sum(link.readlink() == path for link in links)


async def test_no_connection_stays_open_when_they_are_opened_anew(sqlite_db: Database) -> None:
    path = Path(str(sqlite_db.url.database))
    async with sqlite_db.read() as tx:
        await tx.scalar(text("SELECT 1"))
    async with sqlite_db.write() as tx:
        await tx.scalar(text("SELECT 1"))
    assert open_files(path) > 0
    await sqlite_db.reopen()
    assert open_files(path) == 0
    async with sqlite_db.write() as tx:
        await tx.scalar(text("SELECT 1"))
