"""Add when the cloud was last called to end an instance; null where nobody called it since this column exists."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("instances", sa.Column("terminate_called_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop the column. An end whose reply was lost is then booked until a later reply, as before."""
    op.drop_column("instances", "terminate_called_at")
