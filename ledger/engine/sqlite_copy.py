"""Copy a SQLite ledger while others write to it, and put a copy in the place of one that nobody uses."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

#: So many pages are copied at a time; Python's other threads run in between.
PAGES = 4_096
#: What SQLite keeps beside a file that is open, or was left by a process that died.
BESIDE = ("-wal", "-shm", "-journal")


class LedgerInUse(RuntimeError):
    """Say that another process has the ledger open."""


class NotALedger(RuntimeError):
    """Say that a file is no SQLite database, or a damaged one."""


def copy_ledger(ledger: Path, copy: Path) -> None:
    """Write the ledger's state of this moment into a new file, while others keep writing.

    The copy reads one snapshot of the write-ahead log. Without it every write of a service would begin the copy anew.
    """
    with closing(_opened(ledger)) as source, closing(sqlite3.connect(copy, isolation_level=None)) as target:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # The snapshot begins with the first read.
        source.backup(target, pages=PAGES, sleep=0.01)
        source.execute("ROLLBACK")
        target.execute("PRAGMA journal_mode=DELETE")  # One file: `Database` sets its own mode when it opens it.
    _flushed(copy)


def refuse_damaged(copy: Path) -> None:
    """Raise `NotALedger` unless SQLite can read every page of a file."""
    try:
        with closing(_opened(copy)) as connection:
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        raise NotALedger(str(error)) from error
    if verdict != "ok":
        raise NotALedger(verdict)


def put_in_place(copy: Path, ledger: Path, aside: Path, begin: Callable[[], None] = lambda: None) -> bool:
    """Put a copy in the place of a ledger, which stays under the name `aside`. False where there was none.

    At every moment the ledger's name is that of the whole old file or of the whole new one. `begin` is called right
    before it changes. Raises `LedgerInUse` while another process has the ledger open.
    """
    _flushed(copy)
    had_ledger = ledger.exists()
    if had_ledger:
        with _closed_to_others(ledger):
            os.link(ledger, aside)
            _leave_nothing_beside(ledger, aside)
            begin()
            copy.replace(ledger)
    else:
        _leave_nothing_beside(ledger, aside)
        begin()
        copy.replace(ledger)
    flush_folder(ledger.parent)
    return had_ledger


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _closed_to_others(ledger: Path) -> Iterator[None]:
    """Fold the write-ahead log into the file, and let nobody else in; a file that is no database needs neither."""
    with closing(_opened(ledger)) as connection:
        try:
            # SQLite leaves this mode only for the last connection, so it tells whether another process has the file.
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as error:
            code = error.sqlite_errorcode & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise LedgerInUse(f"another process has {ledger} open") from error
            # A damaged file is what a copy replaces. Its log can't be folded in, and goes aside with it.
            if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise OSError(f"{ledger} can't be replaced: {error}") from error
        yield


def _leave_nothing_beside(ledger: Path, aside: Path) -> None:
    """Move an old log aside: SQLite would play it into the new file."""
    for suffix in BESIDE:
        log = Path(f"{ledger}{suffix}")
        if log.exists():
            log.replace(f"{aside}{suffix}")


def _opened(path: Path) -> sqlite3.Connection:
    """Open a file that is there, without waiting for locks."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=0)


def _flushed(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
