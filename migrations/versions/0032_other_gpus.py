"""What an instance has instead of the GPUs that were approved; empty where they fit. Older code never looks at it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("instances", sa.Column("other_gpus", sa.String(length=80), nullable=False, server_default=""))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("instances", "other_gpus")
