"""Who decides for whom until when, and what an approval rests on: a new table, and columns that may stay empty.

A previous release makes approvals without them, and lets no delegate decide.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table and add the columns."""
    op.create_table(
        "delegations",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("delegator", sa.String(96), nullable=False),
        sa.Column("delegate", sa.String(96), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("made_by", sa.String(96), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_by", sa.String(96), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_delegations"),
    )
    op.create_index("ix_delegations_delegate", "delegations", ["delegate"])
    op.create_index("ix_delegations_delegator", "delegations", ["delegator"])
    op.add_column("approvals", sa.Column("on_behalf_of", sa.String(96), nullable=True))
    op.add_column("approvals", sa.Column("digest", sa.String(64), nullable=True))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("approvals", "digest")
    op.drop_column("approvals", "on_behalf_of")
    op.drop_table("delegations")
