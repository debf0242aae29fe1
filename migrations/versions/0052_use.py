"""Add the ports of an instance that its cloud has opened; null where it opened none, or nobody asked for any."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import JSON

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("instances", sa.Column("ports", JSON, nullable=True))


def downgrade() -> None:
    """Drop the column. The next listing of a cloud shows them again."""
    op.drop_column("instances", "ports")
