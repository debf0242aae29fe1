"""What an approval reserves for the hold at an end: dollars of the cap and seconds; empty where nothing was reserved.

A previous release reads neither column, and lets the run spend the whole cap.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("instances", sa.Column("hold_usd", sa.BigInteger(), nullable=True))
    op.add_column("instances", sa.Column("hold_s", sa.Integer(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    for name in ("hold_s", "hold_usd"):
        op.drop_column("instances", name)
