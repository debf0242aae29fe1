"""Store when a turn at a cloud was written, so that a clock that steps back, or a fast one, delays nobody.

Turns mean nothing after some seconds, so the rows of before are dropped.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the turns of before, which nobody waits for, and add the column."""
    op.execute("DELETE FROM turns")
    op.add_column("turns", sa.Column("written_at_us", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop the column; the turns stay."""
    op.drop_column("turns", "written_at_us")
