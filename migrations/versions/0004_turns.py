"""The turns that replicas take at a cloud with a limit: one small row per account and group of calls.

A previous release paces itself alone and never looks at them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "turns",
        sa.Column("name", sa.String(length=96), nullable=False),
        sa.Column("free_at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_turns"),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("turns")
