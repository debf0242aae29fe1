"""What clouds say they charged, line by line."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "bill_lines",
        sa.Column("cloud", sa.String(24), nullable=False),
        sa.Column("account", sa.String(24), nullable=False),
        sa.Column("line_id", sa.String(160), nullable=False),
        sa.Column("ref", sa.String(64), nullable=False),
        sa.Column("component", sa.String(24), nullable=False),
        sa.Column("amount_usd", sa.BigInteger(), nullable=False),
        sa.Column("begins", TIME, nullable=False),
        sa.Column("ends", TIME, nullable=False),
        sa.Column("read_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("cloud", "account", "line_id", name="pk_bill_lines"),
    )
    op.create_index("ix_bill_lines_cloud_account_ref", "bill_lines", ["cloud", "account", "ref"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("bill_lines")
