"""Dump a PostgreSQL ledger and put a dump in its place, by PostgreSQL's own client programs.

They are found on PATH. Passwords go to them through the environment, which other users can't read.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from sqlalchemy import text
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.copied_journal import NUMBERS, TABLES

#: Schemas of ledgers that a restore has replaced; they are in no dump.
ASIDE = "before_restore_"
#: A restore waits so long for the locks of others, then it gives up and changes nothing.
LOCK_TIMEOUT = "10s"
#: Rows of a dump that are read at a time.
BATCH = 2_000
#: Refuses to continue while somebody else is connected, also somebody who came since this was last asked.
ALONE = """
DO $alone$ BEGIN
  IF EXISTS (
    SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type = 'client backend'
  ) THEN RAISE EXCEPTION 'somebody is connected to this ledger'; END IF;
END $alone$;
"""
#: Moves everything in the ledger's schema, but not what extensions have there, into a schema of its own.
MOVE_ASIDE = """
CREATE SCHEMA "{aside}";
DO $move$
DECLARE item record;
BEGIN
  FOR item IN
    SELECT c.oid::regclass AS name,
      CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END AS kind
    FROM pg_class AS c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
    AND NOT EXISTS (
      SELECT FROM pg_depend AS d
      WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i', 'e')
    )
  LOOP EXECUTE format('ALTER %s %s SET SCHEMA "{aside}"', item.kind, item.name); END LOOP;
  FOR item IN
    SELECT p.oid::regprocedure AS name FROM pg_proc AS p WHERE p.pronamespace = current_schema()::regnamespace
    AND NOT EXISTS (
      SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
    )
  LOOP EXECUTE format('ALTER ROUTINE %s SET SCHEMA "{aside}"', item.name); END LOOP;
END
$move$;
"""
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_COPY = re.compile(r'^COPY (?:"?\w+"?\.)?"?(\w+)"? \((.+)\) FROM stdin;$')


class ClientProblem(RuntimeError):
    """Say that a program of PostgreSQL is missing, too old, or failed; the message says what to do."""


class ServerState(NamedTuple):
    """Say which version a server has, how many others are connected to the database, and whether it has tables."""

    major: int
    connected: int
    has_tables: bool


async def server_state(tx: AsyncSession) -> ServerState:
    """Read the state of the server behind a transaction."""
    query = """
    SELECT current_setting('server_version_num')::int / 10000,
      (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
       AND backend_type = 'client backend'),
      EXISTS (SELECT FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r')
    """
    return ServerState(*(await tx.execute(text(query))).one())


def client(name: str, least: int) -> str:
    """Return the path of a client program of at least this version. Raises `ClientProblem`."""
    path = shutil.which(name)
    if path is None:
        raise ClientProblem(f"{name} is not on PATH. Install PostgreSQL's client programs, version {least} or newer.")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603 # Found by its name.
    number = re.search(r"\(PostgreSQL\) (\d+)", said)
    if number is None or int(number[1]) < least:
        raise ClientProblem(
            f"{path} is version {number[1] if number else 'unknown'}, and version {least} or newer is needed. Install "
            f"PostgreSQL's client programs of version {least}."
        )
    return path


def dump_ledger(url: URL, dump: Path, major: int) -> None:
    """Write one consistent state of the ledger into a file, while others keep writing. Raises `ClientProblem`."""
    command = [client("pg_dump", major), "--format=custom", "--no-owner", "--no-privileges", "--no-password"]
    with _complaints() as complaints:
        code = subprocess.run(  # noqa: S603 # Found by its name.
            [*command, f"--exclude-schema={ASIDE}*", f"--file={dump}"],
            env=_environment(url), stdin=subprocess.DEVNULL, stderr=complaints, check=False,
        ).returncode  # fmt: skip
        _refuse_failed("pg_dump", code, complaints)


def read_journal(dump: Path, copy: Path, major: int) -> None:
    """Write the tables of the journal from a dump into a SQLite file. Raises `ClientProblem`."""
    tables = [f"--table={table}" for table in TABLES]
    with closing(sqlite3.connect(copy)) as target, _reading(dump, major, "--data-only", *tables) as lines:
        for table, columns in TABLES.items():
            typed = (f"{column} {'INTEGER' if column in NUMBERS else 'TEXT'}" for column in columns)
            target.execute(f"CREATE TABLE {table} ({', '.join(typed)})")
        target.execute("CREATE INDEX ix_order ON event_order (event_id)")
        for line in lines:
            if copied := _COPY.match(line):
                _fill(target, copied[1], [name.strip('" ') for name in copied[2].split(",")], lines)
        target.execute("CREATE INDEX ix_hashes ON event_hashes (event_id)")
        target.execute("CREATE UNIQUE INDEX ix_events ON events (id)")
        target.commit()


def put_in_place(url: URL, dump: Path, aside: str | None, major: int, begin: Callable[[], None] = lambda: None) -> None:
    """Put a dump in the place of the ledger, in one transaction; what was there moves to the schema `aside`.

    Only this process writes the COMMIT, and only after the whole dump: when it is killed, psql reads the end of its
    input and undoes everything. `begin` is called right before the COMMIT. Raises `ClientProblem`.
    """
    command = [client("psql", major), "--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1"]
    with _complaints() as complaints:
        psql = subprocess.Popen(  # noqa: S603 # Found by its name.
            command, env=_environment(url), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=complaints,
            text=True, encoding="utf-8",
        )  # fmt: skip
        try:
            if psql.stdin is None:
                raise ClientProblem("psql has no input")
            with psql.stdin as script:
                script.write(f"BEGIN;\nSET LOCAL lock_timeout = '{LOCK_TIMEOUT}';\n")
                script.write(ALONE)
                script.write(MOVE_ASIDE.format(aside=aside) if aside else "")
                with _reading(dump, major, "--no-owner", "--no-privileges") as lines:
                    script.writelines(lines)
                script.flush()  # psql may have stopped at an error, which shows here.
                begin()
                script.write("\nCOMMIT;\n")
        except BrokenPipeError:
            pass  # psql stopped at an error; what it says is raised below.
        except BaseException:
            psql.kill()
            raise
        finally:
            code = psql.wait()
        _refuse_failed("psql", code, complaints)


@contextmanager
def _reading(dump: Path, major: int, *options: str) -> Iterator[Iterator[str]]:
    """Yield the lines of SQL of a dump; raises `ClientProblem` at the end when it can't be read whole."""
    command = [client("pg_restore", major), *options, "--file=-", str(dump)]
    with _complaints() as complaints:
        # Lines end with "\n" alone: a text may have other characters in it at which Python would split.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints)  # noqa: S603 # As above.
        try:
            if process.stdout is None:
                raise ClientProblem("pg_restore has no output")
            yield (line.decode() for line in process.stdout)
        except BaseException:
            process.kill()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()
            code = process.wait()
        _refuse_failed("pg_restore", code, complaints)


def _fill(target: sqlite3.Connection, table: str, names: Sequence[str], lines: Iterator[str]) -> None:
    """Insert the rows of one COPY up to its end."""
    columns = TABLES.get(table, ())
    places = [names.index(column) if column in names else None for column in columns]
    insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 # Our own names.
    batch: list[list[str | None]] = []
    for line in lines:
        if line == "\\.\n":
            break
        fields = line.removesuffix("\n").split("\t")
        batch.append([None if place is None else _unescaped(fields[place]) for place in places])
        if len(batch) == BATCH:
            target.executemany(insert, batch)
            batch.clear()
    target.executemany(insert, batch)


def _unescaped(field: str) -> str | None:
    if field == "\\N":
        return None
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), field) if "\\" in field else field


def _environment(url: URL) -> Mapping[str, str]:
    """Return the environment from which the client programs take the server's address."""
    ssl = url.query.get("ssl") or url.query.get("sslmode")
    where = {
        "PGHOST": url.host or url.query.get("host"),
        "PGPORT": url.port or url.query.get("port"),
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
        "PGDATABASE": url.database,
        "PGSSLMODE": ssl,
        "PGAPPNAME": "gpu-shopper",
        "PGCLIENTENCODING": "UTF8",
        "LC_MESSAGES": "C",
    }
    return {**os.environ, **{name: str(value) for name, value in where.items() if value}}


@contextmanager
def _complaints() -> Iterator[IO[bytes]]:
    """Yield a file for what a program writes to its standard error: a pipe that nobody reads would stop it."""
    with tempfile.TemporaryFile() as complaints:
        yield complaints


def _refuse_failed(program: str, code: int, complaints: IO[bytes]) -> None:
    """Raise `ClientProblem` with the program's own error when it failed."""
    if code:
        complaints.seek(0)
        raise ClientProblem(f"{program} failed: {_error(complaints.read().decode(errors='replace').splitlines())}")


def _error(lines: Iterable[str]) -> str:
    """Return the first line that names an error, without the place of it; else the last line."""
    last = "it said nothing"
    for line in lines:
        last = line.strip() or last
        if found := re.search(r"(?:ERROR|FATAL|error): +(.+)", line):
            return found[1]
    return last
