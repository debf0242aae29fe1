"""A SQLite ledger is copied beside its writers, and replaced whole or not at all."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from ledger.engine.copied_journal import CopiedJournal, NoJournal
from ledger.engine.sqlite_copy import BESIDE, LedgerInUse, NotALedger, copy_ledger, put_in_place, refuse_damaged


def ledger(path: Path, rows: int = 1) -> sqlite3.Connection:
    """A file in the mode of a ledger, with so many rows, and its open connection."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE pairs (a, b, filling DEFAULT (hex(randomblob(2000))))")
    connection.executemany("INSERT INTO pairs (a, b) VALUES (?, ?)", [(number, number) for number in range(rows)])
    return connection


def rows(path: Path) -> int:
    """How many rows a file has."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM pairs").fetchone()[0])


def test_a_copy_is_of_one_moment_while_another_connection_writes_without_pause(tmp_path: Path) -> None:
    source, stopping, written = tmp_path / "ledger.db", threading.Event(), threading.Event()
    with closing(ledger(source, 5_000)) as connection:

        def write() -> None:
            while not stopping.is_set():
                connection.execute("INSERT INTO pairs (a, b) SELECT max(a) + 1, max(b) + 1 FROM pairs")
                written.set()

        writer = threading.Thread(target=write)
        writer.start()
        written.wait()
        copy_ledger(source, tmp_path / "copy.db")
        stopping.set()
        writer.join()
    refuse_damaged(tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        count, a, b = copy.execute("SELECT count(*), max(a), max(b) FROM pairs").fetchone()
        assert copy.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert 5_000 < count <= rows(source)
    assert a == b == count - 1


def test_a_ledger_is_replaced_and_stays_beside_with_what_was_only_in_its_log(tmp_path: Path) -> None:
    old, new, aside = tmp_path / "ledger.db", tmp_path / "new.db", tmp_path / "ledger.db.before"
    copying = tmp_path / "copied"
    copying.mkdir()
    with closing(ledger(old, 300)):  # Its log is still beside it, as after a kill.
        for suffix in ("", "-wal"):
            (copying / f"ledger.db{suffix}").write_bytes(Path(f"{old}{suffix}").read_bytes())
    old = copying / "ledger.db"
    assert Path(f"{old}-wal").stat().st_size > 0
    ledger(new, 3).close()
    assert put_in_place(new, old, aside)
    assert (rows(old), rows(aside), new.exists()) == (3, 300, False)
    assert not any(Path(f"{old}{suffix}").exists() for suffix in BESIDE)


def test_a_ledger_that_somebody_has_open_stays(tmp_path: Path) -> None:
    old, new, aside = tmp_path / "ledger.db", tmp_path / "new.db", tmp_path / "ledger.db.before"
    ledger(new, 3).close()
    with closing(ledger(old, 2)) as connection:
        with pytest.raises(LedgerInUse, match=r"ledger\.db open"):
            put_in_place(new, old, aside)
        connection.execute("INSERT INTO pairs (a, b) VALUES (9, 9)")
    assert (rows(old), aside.exists(), rows(new)) == (3, False, 3)


def test_a_damaged_ledger_is_replaced_and_its_log_goes_aside_with_it(tmp_path: Path) -> None:
    old, new, aside = tmp_path / "ledger.db", tmp_path / "new.db", tmp_path / "ledger.db.before"
    old.write_bytes(b"no database " * 1_000)
    Path(f"{old}-wal").write_bytes(b"its log")
    ledger(new, 3).close()
    assert put_in_place(new, old, aside)
    assert rows(old) == 3
    assert aside.read_bytes().startswith(b"no database")
    assert Path(f"{aside}-wal").read_bytes() == b"its log"


def test_where_no_ledger_is_the_copy_is_put_and_nothing_stays_beside(tmp_path: Path) -> None:
    new, place = tmp_path / "new.db", tmp_path / "ledger.db"
    ledger(new, 3).close()
    assert not put_in_place(new, place, tmp_path / "aside")
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]


def test_a_ledger_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "ledger.db", tmp_path / "new.db"
    ledger(old).close()
    ledger(new).close()
    opened = sqlite3.connect

    def read_only(file: str, **more: object) -> sqlite3.Connection:
        return opened(file.replace("mode=rw", "mode=ro"), **more)  # type: ignore[call-overload,no-any-return] # As it came.

    monkeypatch.setattr(sqlite3, "connect", read_only)  # For root no file is read-only.
    with pytest.raises(OSError, match=r"ledger\.db can't be replaced"):
        put_in_place(new, old, tmp_path / "aside")


def test_a_damaged_page_and_a_file_that_is_no_database_are_refused(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    ledger(copy, 500).close()
    refuse_damaged(copy)
    content = bytearray(copy.read_bytes())
    content[4096 : 3 * 4096] = b"\x05" * 2 * 4096
    copy.write_bytes(content)
    with pytest.raises(NotALedger):
        refuse_damaged(copy)
    copy.write_bytes(b"text " * 1_000)
    with pytest.raises(NotALedger, match="not a database"):
        refuse_damaged(copy)
    ledger(tmp_path / "other.db").close()
    with pytest.raises(NoJournal, match="no alembic_version"):
        CopiedJournal(tmp_path / "other.db")
