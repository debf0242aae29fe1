"""What was ordered of a live instance and since when: stop, start or restart; empty where nothing is under way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("instances", sa.Column("wanted", sa.String(length=16), nullable=True))
    op.add_column("instances", sa.Column("wanted_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("instances", "wanted_at")
    op.drop_column("instances", "wanted")
