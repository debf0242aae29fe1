"""Store an earlier owner's part of a running hour, how long a session ran before its stops, and budget thresholds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import JSON, TIME

revision = "0067"
down_revision = "0066"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    for name in ("gpu_split_s", "storage_split_s"):
        op.add_column("instances", sa.Column(name, sa.Integer(), nullable=True))
    op.add_column("sessions", sa.Column("ran_s", sa.Integer(), nullable=True))
    op.add_column("sessions", sa.Column("stopped_at", TIME, nullable=True))
    op.add_column("budget_limits", sa.Column("thresholds", JSON, nullable=True))


def downgrade() -> None:
    """Drop the columns. An hour that was split is booked once more in part until its instance has ended."""
    op.drop_column("budget_limits", "thresholds")
    for name in ("stopped_at", "ran_s"):
        op.drop_column("sessions", name)
    for name in ("storage_split_s", "gpu_split_s"):
        op.drop_column("instances", name)
