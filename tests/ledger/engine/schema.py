"""Describe a database's schema from its own catalog: every table, index, trigger and function, with its full text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from sqlalchemy import Connection, text

from ledger.engine.db import Database

#: Alembic's own table is the same in every ledger.
LEFT_OUT = "alembic_version"
_CREATED = re.compile(r"CREATE TABLE \"?\w+\"? \((.*)\)([^)]*)")

#: The fingerprint of the baseline's schema.
BASELINE = {
    "sqlite": "b8222138120aa65a62a3d40dfe467b541e3c8879342718d4e0a81fa44c372502",
    "postgresql": "3d37e0fda0fbf56f9a63e54b2b5c0365b87020737269329e2b5429e3e0a780ce",
}

#: Every trigger of ours, and those that only PostgreSQL has.
GUARDS = {
    "advance_approvals_fixed",
    "advance_approvals_no_delete",
    "approvals_no_delete",
    "approvals_no_update",
    "command_claims_fixed",
    "command_claims_no_delete",
    "command_results_fixed",
    "command_results_no_delete",
    "event_order_no_delete",
    "event_order_no_update",
    "events_no_delete",
    "events_no_update",
    "events_unnumbered",
    "grants_changed_unsettled",
    "grants_fixed",
    "grants_left_unsettled",
    "grants_need_approvals",
    "grants_no_delete",
    "grants_unsettled",
    "instances_account_moves",
    "instances_fixed",
    "instances_need_grant",
    "instances_no_delete",
    "ledger_entries_no_delete",
    "ledger_entries_no_update",
    "ledger_entries_released",
    "ledger_entries_unrolled",
    "ledger_entries_unsettled",
    "sessions_changed_unsettled",
    "sessions_unsettled",
    "resume_points_fixed",
    "resume_points_no_delete",
}
#: The schema of the baseline, which ledgers have already: another one needs a step of its own.
TRUNCATE_GUARDS = {
    f"{table}_no_truncate"
    for table in (
        *("advance_approvals", "approvals", "command_results", "command_claims", "event_order", "events"),
        *("grants", "instances", "ledger_entries", "resume_points"),
    )
}

#: What PostgreSQL has, table by table: columns as they stand, indexes as they were made, and the rest by name.
POSTGRES = {
    "column": """
        SELECT c.relname, concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
            CASE WHEN a.attnotnull THEN 'NOT NULL' END, 'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid),
            nullif(a.attidentity, ''), nullif(a.attgenerated, ''), nullif(a.attcollation, 0)::regcollation)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attnum""",
    "constraint": """
        SELECT conrelid::regclass::text, conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype <> 'n' ORDER BY conname""",
    "index": """
        SELECT indrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class c ON c.oid = indexrelid
        WHERE c.relnamespace = 'public'::regnamespace ORDER BY indexrelid""",
    "trigger": """
        SELECT tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
        ORDER BY tgname""",
    "function": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace ORDER BY proname""",
    "sequence": """
        SELECT sequencename, concat_ws(' ', data_type, start_value, increment_by) FROM pg_sequences
        WHERE schemaname = 'public' ORDER BY sequencename""",
}


def described(connection: Connection) -> list[str]:
    """One line for each thing in the schema; two schemas that are the same have the same lines in the same order."""
    lines = _sqlite(connection) if connection.dialect.name == "sqlite" else _postgres(connection)
    return [" ".join(line.split()) for line in lines if LEFT_OUT not in line]


def _postgres(connection: Connection) -> Iterator[str]:
    for kind, query in POSTGRES.items():
        # Sorted here, because the order of names is each server's own.
        for table, said in sorted(connection.execute(text(query)), key=lambda row: str(row[0])):
            yield f"{table} {kind} {said}"


def _sqlite(connection: Connection) -> Iterator[str]:
    """A column that was added later stands behind the constraints in the text, and among the columns in the table."""
    query = "SELECT type, tbl_name, name, sql FROM sqlite_master ORDER BY tbl_name, type, rowid"
    for kind, table, name, sql in connection.execute(text(query)):
        if kind != "table":
            yield f"{table} {kind} {name} {sql or ''}"
            continue
        parts, options = _parts(" ".join(sql.split()))
        for wanted in (False, True):
            for part in parts:
                if part.startswith("CONSTRAINT ") is wanted:
                    yield f"{table} {'constraint' if wanted else 'column'} {part}"
        yield f"{table} options {options}"


def _parts(sql: str) -> tuple[list[str], str]:
    """What stands between the commas of a CREATE TABLE, and what follows its last bracket."""
    found = _CREATED.fullmatch(sql)
    assert found is not None, sql
    return [part.strip() for part in re.split(r",(?![^(]*\))", found[1])], found[2].strip()


async def triggers(db: Database) -> set[str]:
    """The names of all triggers of ours."""
    query = (
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        if db.dialect == "sqlite"
        else "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    )
    async with db.read() as tx:
        return set((await tx.execute(text(query))).scalars())


def expected(db: Database) -> set[str]:
    """Every trigger that there is."""
    return GUARDS if db.dialect == "sqlite" else GUARDS | TRUNCATE_GUARDS


async def tables(db: Database) -> set[str]:
    """The names of all tables but alembic's own."""
    query = (
        "SELECT name FROM sqlite_master WHERE type = 'table'"
        if db.dialect == "sqlite"
        else "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    )
    async with db.read() as tx:
        return set((await tx.execute(text(query))).scalars()) - {"alembic_version"}


async def schema(db: Database) -> list[str]:
    """Every line that describes the schema of a database."""
    async with db.writer.connect() as connection:
        return await connection.run_sync(described)


async def fingerprint(db: Database) -> str:
    """One text that is another as soon as anything in the schema is."""
    return hashlib.sha256("\n".join(await schema(db)).encode()).hexdigest()
