"""Add sets of machines: how many a session has, which of them an instance is, and where the others reach it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0064"
down_revision = "0063"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. Every session of before has one machine."""
    op.add_column("sessions", sa.Column("nodes", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("instances", sa.Column("node_rank", sa.Integer(), nullable=True))
    op.add_column("instances", sa.Column("set_host", sa.String(255), nullable=True))


def downgrade() -> None:
    """Drop the columns. End the sets before: a release without them follows only the newest machine of each."""
    op.drop_column("instances", "set_host")
    op.drop_column("instances", "node_rank")
    op.drop_column("sessions", "nodes")
