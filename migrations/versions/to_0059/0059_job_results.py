"""Add how the job of a session ended; null while it has not, and where a session has no job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0059"
down_revision = "0058"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. Jobs that ended before have no recorded result."""
    op.add_column("sessions", sa.Column("job_state", sa.String(16), nullable=True))
    op.add_column("sessions", sa.Column("job_exit_code", sa.Integer(), nullable=True))
    op.add_column("sessions", sa.Column("job_ended_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop the columns. The audit log keeps how each job ended."""
    for name in ("job_ended_at", "job_exit_code", "job_state"):
        op.drop_column("sessions", name)
