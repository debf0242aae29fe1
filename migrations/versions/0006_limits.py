"""The limit that an approver set for all attempts of a request: one column, empty where they set none.

A previous release neither reads nor writes it; what it approves sets no limit that outlives its quote.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, in whole micro-dollars."""
    op.add_column("approvals", sa.Column("limit_usd", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("approvals", "limit_usd")
