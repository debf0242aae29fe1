"""Since when an instance that had been ready does not work: one column, empty at first.

A previous release never looks at it, and leaves such an instance to its approved end.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("instances", sa.Column("trouble_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("instances", "trouble_at")
