"""Costs summed up by the hour, day and month, a chain over all entries, and what other tools spent.

Entries that are there already wait to be rolled up like new ones: the job works them off in the background, and what
waits is counted from the entries themselves meanwhile.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables and the trigger that notes each new entry."""
    _rollup()
    _entries()
    op.execute(sa.text("INSERT INTO unrolled (entry_id, at) SELECT id, at FROM ledger_entries"))
    note = "INSERT INTO unrolled (entry_id, at) VALUES (NEW.id, NEW.at);"
    if op.get_context().dialect.name == "postgresql":
        body = f"$$ BEGIN {note} RETURN NULL; END $$"
        op.execute(sa.text(f"CREATE FUNCTION ledger_note_entry() RETURNS trigger LANGUAGE plpgsql AS {body}"))
        when = "AFTER INSERT ON ledger_entries FOR EACH ROW EXECUTE FUNCTION ledger_note_entry()"
        op.execute(sa.text(f"CREATE TRIGGER ledger_entries_unrolled {when}"))
    else:
        op.execute(sa.text(f"CREATE TRIGGER ledger_entries_unrolled AFTER INSERT ON ledger_entries BEGIN {note} END"))


def downgrade() -> None:
    """Drop them."""
    if op.get_context().dialect.name == "postgresql":
        op.execute(sa.text("DROP TRIGGER ledger_entries_unrolled ON ledger_entries"))
        op.execute(sa.text("DROP FUNCTION ledger_note_entry()"))
    else:
        op.execute(sa.text("DROP TRIGGER ledger_entries_unrolled"))
    for table in ("external_costs", "entry_seals", "unrolled", "rollup", "facets"):
        op.drop_table(table)


def _rollup() -> None:
    op.create_table(
        "facets",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("owner", sa.String(96), nullable=False),
        sa.Column("cloud", sa.String(48), nullable=False),
        sa.Column("gpu", sa.String(48), nullable=False),
        sa.Column("label", sa.String(48), nullable=False),
        sa.Column("tool", sa.String(48), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_facets"),
        sa.UniqueConstraint("owner", "cloud", "gpu", "label", "tool", name="uq_facets_owner_cloud_gpu_label_tool"),
    )
    op.create_table(
        "rollup",
        sa.Column("tier", sa.String(24), nullable=False),
        sa.Column("begins", TIME, nullable=False),
        sa.Column("facet_id", sa.Integer(), nullable=False),
        sa.Column("amount_usd", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["facet_id"], ["facets.id"], name="fk_rollup_facet_id_facets"),
        sa.PrimaryKeyConstraint("tier", "begins", "facet_id", name="pk_rollup"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_rollup_facet_id_tier_begins", "rollup", ["facet_id", "tier", "begins"])


def _entries() -> None:
    op.create_table(
        "unrolled",
        sa.Column("entry_id", sa.String(24), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["entry_id"], ["ledger_entries.id"], name="fk_unrolled_entry_id_ledger_entries"),
        sa.PrimaryKeyConstraint("entry_id", name="pk_unrolled"),
    )
    op.create_table(
        "entry_seals",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.String(24), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["entry_id"], ["ledger_entries.id"], name="fk_entry_seals_entry_id_ledger_entries"),
        sa.PrimaryKeyConstraint("number", name="pk_entry_seals"),
        sa.UniqueConstraint("entry_id", name="uq_entry_seals_entry_id"),
    )
    op.create_table(
        "external_costs",
        sa.Column("entry_id", sa.String(24), nullable=False),
        sa.Column("key", sa.String(96), nullable=False),
        sa.Column("skill", sa.String(48), nullable=False),
        sa.Column("provider", sa.String(48), nullable=False),
        sa.Column("action", sa.String(96), nullable=False),
        sa.Column("amount_usd", sa.BigInteger(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(96), nullable=False),
        sa.Column("added_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["entry_id"], ["ledger_entries.id"], name="fk_external_costs_entry_id_ledger_entries"),
        sa.PrimaryKeyConstraint("entry_id", name="pk_external_costs"),
        sa.UniqueConstraint("key", name="uq_external_costs_key"),
    )
