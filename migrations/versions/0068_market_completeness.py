"""Store on a request which clouds are still being read for it, since when, and what was found so far."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import JSON

revision = "0068"
down_revision = "0067"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("requests", sa.Column("looking", JSON, nullable=True))


def downgrade() -> None:
    """Drop the column. A request whose clouds are still being read is quoted as if for the first time."""
    op.drop_column("requests", "looking")
