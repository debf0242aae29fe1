"""Store how much of a running hour was booked when the owner of its session changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0067"
down_revision = "0066"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    for name in ("gpu_split_s", "storage_split_s"):
        op.add_column("instances", sa.Column(name, sa.Integer(), nullable=True))


def downgrade() -> None:
    """Drop the columns. An hour that was split is booked once more in part until its instance has ended."""
    for name in ("storage_split_s", "gpu_split_s"):
        op.drop_column("instances", name)
