"""Store an earlier owner's part of a running hour, the time of runs before a stop, budget thresholds, and moves.

Of a move: where its target saves, and from when the longest time of its step counts.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import JSON, TEXT, TIME

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
    op.add_column("migrations", sa.Column("target_place", TEXT, nullable=True))
    op.add_column("migrations", sa.Column("clock_from", TIME, nullable=True))


def downgrade() -> None:
    """Drop the columns. A split hour is booked once more in part; what a failed target saved counts as a checkpoint."""
    op.drop_column("migrations", "clock_from")
    op.drop_column("migrations", "target_place")
    op.drop_column("budget_limits", "thresholds")
    for name in ("stopped_at", "ran_s"):
        op.drop_column("sessions", name)
    for name in ("storage_split_s", "gpu_split_s"):
        op.drop_column("instances", name)
