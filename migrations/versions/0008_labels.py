"""The project label that a session's costs count for; empty for sessions of older releases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("sessions", sa.Column("label", sa.String(length=48), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("sessions", "label")
