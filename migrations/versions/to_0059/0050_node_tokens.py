"""Add what is stored of the token that an agent receives for its boot token; null where it never exchanged one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None

HASHES = ("checkin_hash", "previous_hash", "nonce_hash")
TIMES = ("exchanged_at", "exchange_open_at", "token_notified_at")


def upgrade() -> None:
    """Add the columns."""
    for name in HASHES:
        op.add_column("nodes", sa.Column(name, sa.String(64), nullable=True))
    for name in TIMES:
        op.add_column("nodes", sa.Column(name, sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop the columns. Agents that exchanged their boot token can then report with the boot token only."""
    for name in (*TIMES, *HASHES):
        op.drop_column("nodes", name)
