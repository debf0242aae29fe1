"""Where an end waits for a checkpoint: its step, until when, and the sentence about it; empty where none does.

A previous release never looks at it, and ends such a machine at once.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("instances", sa.Column("gate", sa.String(length=16), nullable=True))
    op.add_column("instances", sa.Column("gate_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("instances", sa.Column("gate_note", sa.Text(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    for name in ("gate_note", "gate_until", "gate"):
        op.drop_column("instances", name)
