"""Budgets that are set while the service runs: one new table, so that the previous release goes on beside this one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "budget_limits",
        sa.Column("scope", sa.String(96), nullable=False),
        sa.Column("period", sa.String(16), nullable=False),
        sa.Column("limit_usd", sa.BigInteger(), nullable=False),
        sa.Column("set_by", sa.String(96), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("scope", "period", name="pk_budget_limits"),
    )


def downgrade() -> None:
    """Drop it. The budgets of the policy file hold alone again."""
    op.drop_table("budget_limits")
