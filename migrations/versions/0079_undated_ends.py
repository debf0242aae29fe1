"""Store until when an instance may have run at the latest, and what that time may have cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import TIME, USD

revision = "0079"
down_revision = "0078"
branch_labels = None
depends_on = None

_OPEN = sa.text("unsettled_usd IS NOT NULL")


def upgrade() -> None:
    """Add the columns and the index of the few rows that have an amount. Earlier ends stay without them."""
    op.add_column("instances", sa.Column("latest_end_at", TIME, nullable=True))
    op.add_column("instances", sa.Column("unsettled_usd", USD, nullable=True))
    op.create_index(
        "ix_instances_unsettled", "instances", ["latest_end_at"], sqlite_where=_OPEN, postgresql_where=_OPEN
    )


def downgrade() -> None:
    """Drop them. Budgets then count the likely ends only."""
    op.drop_index("ix_instances_unsettled", table_name="instances")
    op.drop_column("instances", "unsettled_usd")
    op.drop_column("instances", "latest_end_at")
