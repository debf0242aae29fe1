"""Seals of the journal: a chain of hashes per subject, beside the events, which never change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; older events are sealed by the first passes."""
    op.create_table(
        "seals",
        sa.Column("event_id", sa.String(length=24), nullable=False),
        sa.Column("subject", sa.String(length=128), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["event_id"], ["events.id"], name="fk_seals_event_id_events"),
        sa.PrimaryKeyConstraint("event_id", name="pk_seals"),
        sa.UniqueConstraint("subject", "number", name="uq_seals_subject_number"),
    )
    op.create_index("ix_seals_at", "seals", ["at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_index("ix_seals_at", table_name="seals")
    op.drop_table("seals")
