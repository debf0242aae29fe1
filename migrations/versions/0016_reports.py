"""What ended in a time is found without reading every session."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index."""
    op.create_index("ix_sessions_ended_at", "sessions", ["ended_at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_index("ix_sessions_ended_at", table_name="sessions")
