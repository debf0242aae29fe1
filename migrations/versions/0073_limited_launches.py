"""Store how long the launch of an instance waits for its cloud's rate limit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import TIME

revision = "0073"
down_revision = "0072"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("instances", sa.Column("limited_at", TIME, nullable=True))
    op.add_column("instances", sa.Column("limited_until", TIME, nullable=True))


def downgrade() -> None:
    """Drop the columns. A launch that waits then begins a new wait."""
    op.drop_column("instances", "limited_until")
    op.drop_column("instances", "limited_at")
