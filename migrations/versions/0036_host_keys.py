"""The SSH host key that a machine showed, and when it was looked at last: columns that may stay empty.

A previous release makes rows without them; the next look at a machine that runs fills them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("instances", sa.Column("host_key", sa.Text(), nullable=True))
    op.add_column("instances", sa.Column("host_key_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("instances", "host_key_at")
    op.drop_column("instances", "host_key")
