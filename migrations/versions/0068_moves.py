"""Store where the target of a move saves, and from when the longest time of its step counts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import TEXT, TIME

revision = "0068"
down_revision = "0067"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("migrations", sa.Column("target_place", TEXT, nullable=True))
    op.add_column("migrations", sa.Column("clock_from", TIME, nullable=True))


def downgrade() -> None:
    """Drop the columns. What a failed target saved counts as a checkpoint of its run then."""
    op.drop_column("migrations", "clock_from")
    op.drop_column("migrations", "target_place")
