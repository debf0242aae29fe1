"""Rename tables, columns and kinds to the words of the glossary: orphan, hash, early end, checkpoint check, overspend.

The append-only tables are not touched: no event, approval, grant or ledger entry holds one of the renamed words. Event
kinds such as `stray.seen` keep their stored spelling, because old events have it for good.

A program of an earlier build cannot use this schema, so stop every old process before the upgrade. That is allowed
once, before a first release; later migrations expand first and contract in a later release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, JSON, STATE, TEXT, TIME, USD, WHOLE, Columns, optional, required, table

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

#: New names by old ones.
TABLES = {"strays": "orphans", "seals": "event_hashes", "entry_seals": "entry_hashes"}
COLUMNS = {
    "sessions": {
        "cut_at": "early_end_at",
        "cut_code": "early_end_code",
        "cut_reason": "early_end_reason",
        "spared_until": "kept_running_until",
    },
    "instances": {"gate": "checkpoint_step", "gate_until": "checkpoint_until"},
}
KINDS = {
    "requests": {"drift_reconfirm": "overspend"},
    "notifications": {
        "stray.found": "orphan.found",
        "session.unattended": "session.idle",
        "session.held": "session.checkpoint_hold",
        "session.last_call": "session.final_warning",
    },
}
#: What else of a renamed table carries its name, with `{}` for the name.
CONSTRAINTS = {
    "strays": ("pk_{}", "fk_{}_instance_id_instances", "uq_{}_cloud_account_ref"),
    "seals": ("pk_{}", "fk_{}_event_id_events", "uq_{}_subject_number"),
    "entry_seals": ("pk_{}", "fk_{}_entry_id_ledger_entries", "uq_{}_entry_id"),
}
INDEXES = {"seals": ("ix_{}_at",)}


def upgrade() -> None:
    """Rename from the old words to the new ones; every row is kept."""
    for old, new in TABLES.items():
        _rename_table(old, old, new)
    for name, columns in COLUMNS.items():
        _rename_columns(name, columns)
    for name, kinds in KINDS.items():
        _rename_kinds(name, kinds)


def downgrade() -> None:
    """Rename back to the old words; every row is kept."""
    for name, kinds in KINDS.items():
        _rename_kinds(name, {new: old for old, new in kinds.items()})
    for name, columns in COLUMNS.items():
        _rename_columns(name, {new: old for old, new in columns.items()})
    for old, new in TABLES.items():
        _rename_table(old, new, old)


def _rename_table(known: str, before: str, after: str) -> None:
    """Rename a table with its constraints and indexes. `known` is its name at the revision below.

    SQLite can't rename a constraint. There the rows move to a table that has the new names: no trigger and no foreign
    key names one of these tables, so nothing else follows.
    """
    if op.get_context().dialect.name == "sqlite":
        columns = ", ".join(COPIES[known](after))
        op.execute(f"INSERT INTO {after} ({columns}) SELECT {columns} FROM {before}")  # noqa: S608 # Our own names.
        op.drop_table(before)
        return
    op.rename_table(before, after)
    for one in CONSTRAINTS[known]:
        op.execute(f"ALTER TABLE {after} RENAME CONSTRAINT {one.format(before)} TO {one.format(after)}")
    for one in INDEXES.get(known, ()):
        op.execute(f"ALTER INDEX {one.format(before)} RENAME TO {one.format(after)}")


def _rename_columns(name: str, columns: Mapping[str, str]) -> None:
    for before, after in columns.items():
        op.execute(f"ALTER TABLE {name} RENAME COLUMN {before} TO {after}")


def _rename_kinds(name: str, kinds: Mapping[str, str]) -> None:
    rows = sa.table(name, sa.column("kind", sa.String))
    for before, after in kinds.items():
        op.execute(rows.update().where(rows.c.kind == before).values(kind=after))


def _make(name: str, columns: Columns, **more: Any) -> list[str]:
    """Create a table for SQLite; returns the names of its columns."""
    table(name, columns, **more)
    return [one.name for one in columns]


def _orphans(name: str) -> list[str]:
    columns = [
        *required(id=ID, cloud=sa.String(24), account=sa.String(24), ref=sa.String(256), label=sa.String(48), **STATE),
        *optional(instance_id=ID),
        *required(price_usd_h=USD, first_seen_at=TIME, last_seen_at=TIME),
        *optional(billing_from=TIME),
        *required(absent_at=JSON),
        *optional(ended_at=TIME),
        *required(reason=TEXT),
    ]
    return _make(name, columns, refers={"instance_id": "instances"}, unique=["cloud", "account", "ref"])


def _event_hashes(name: str) -> list[str]:
    columns = required(event_id=ID, subject=sa.String(128), number=WHOLE, hash=sa.String(64), at=TIME)
    refers = {"event_id": "events"}
    return _make(name, columns, key=["event_id"], refers=refers, unique=["subject", "number"], indexes=[["at"]])


def _entry_hashes(name: str) -> list[str]:
    number = sa.Column("number", WHOLE, autoincrement=False, nullable=False)
    columns = [number, *required(entry_id=ID, hash=sa.String(64))]
    return _make(name, columns, key=["number"], refers={"entry_id": "ledger_entries"}, unique=["entry_id"])


#: What makes the same table with other names, by its name at the revision below.
COPIES = {"strays": _orphans, "seals": _event_hashes, "entry_seals": _entry_hashes}
