"""Store when a target took over, whether a save's step is inferred, and what unpaid notices of a volume may cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import TIME, USD

revision = "0074"
down_revision = "0073"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("migrations", sa.Column("taken_over_at", TIME, nullable=True))
    op.add_column("migrations", sa.Column("is_step_inferred", sa.Boolean(), nullable=True))
    op.add_column("sessions", sa.Column("volume_excess_usd", USD, nullable=True))


def downgrade() -> None:
    """Drop the columns. A source that comes back after a take-over then fails the move, as before."""
    op.drop_column("sessions", "volume_excess_usd")
    for name in ("is_step_inferred", "taken_over_at"):
        op.drop_column("migrations", name)
