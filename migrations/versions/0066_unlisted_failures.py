"""Store when an instance last worked that failed while its cloud was not listed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import TIME

revision = "0066"
down_revision = "0065"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("instances", sa.Column("worked_at", TIME, nullable=True))


def downgrade() -> None:
    """Drop the column. The least that such an instance can have cost is stated too high then."""
    op.drop_column("instances", "worked_at")
