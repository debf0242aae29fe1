"""Add the key by which the service logs in to an instance, and what it found there; null where it never did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import JSON

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("instances", sa.Column("login_key", sa.Text(), nullable=True))
    op.add_column("instances", sa.Column("gpu_check", JSON, nullable=True))
    op.add_column("instances", sa.Column("login_until", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop the columns. Instances that boot at that moment become ready when their SSH server answers."""
    for name in ("login_until", "gpu_check", "login_key"):
        op.drop_column("instances", name)
