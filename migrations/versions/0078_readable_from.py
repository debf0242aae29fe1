"""Store which revision's code is the oldest that can work on the ledger, so that an older release can start on it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.readable_from import set_readable_from

revision = "0078"
down_revision = "0076"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column beside the revision. Code of before does not read it, so this revision is the first."""
    op.add_column("alembic_version", sa.Column("readable_from", sa.String(32), nullable=True))
    set_readable_from(revision)


def downgrade() -> None:
    """Drop it. Every program then refuses a ledger of a later revision than it knows."""
    op.drop_column("alembic_version", "readable_from")
