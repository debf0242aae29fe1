"""The API that a machine's agent serves itself: its port and certificate, and the hash of the token that opens it.

Columns that may stay empty: a previous release makes rows without them, and a check-in fills them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("nodes", sa.Column("api_port", sa.Integer(), nullable=True))
    op.add_column("nodes", sa.Column("api_certificate", sa.String(64), nullable=True))
    op.add_column("nodes", sa.Column("api_other", sa.String(64), nullable=True))
    op.add_column("nodes", sa.Column("api_other_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("nodes", sa.Column("api_token_hash", sa.String(64), nullable=True))
    op.add_column("nodes", sa.Column("api_token_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop them."""
    for name in ("api_token_at", "api_token_hash", "api_other_at", "api_other", "api_certificate", "api_port"):
        op.drop_column("nodes", name)
