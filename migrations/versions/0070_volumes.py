"""Store the written end of a network volume, since when its days of notices count, and how many were given."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import TIME

revision = "0070"
down_revision = "0069"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("sessions", sa.Column("volume_ends_at", TIME, nullable=True))
    op.add_column("sessions", sa.Column("volume_grace_at", TIME, nullable=True))
    op.add_column("sessions", sa.Column("volume_notices", sa.Integer(), nullable=True))


def downgrade() -> None:
    """Drop the columns. The end of a volume is then its deadline alone, as before."""
    for name in ("volume_notices", "volume_grace_at", "volume_ends_at"):
        op.drop_column("sessions", name)
