"""Add how much of an instance's GPU time was booked at its last stop; null where nothing was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("instances", sa.Column("gpu_booked_s", sa.Integer(), nullable=True))


def downgrade() -> None:
    """Drop the column. What was booked at a stop stays booked."""
    op.drop_column("instances", "gpu_booked_s")
