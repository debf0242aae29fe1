"""Store since when the target of a move trains without a pause of the source, and whether a save's step is inferred."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import TIME

revision = "0073"
down_revision = "0070"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("migrations", sa.Column("taken_over_at", TIME, nullable=True))
    op.add_column("migrations", sa.Column("is_step_inferred", sa.Boolean(), nullable=True))


def downgrade() -> None:
    """Drop the columns. A source that comes back after a take-over then fails the move, as before."""
    for name in ("is_step_inferred", "taken_over_at"):
        op.drop_column("migrations", name)
