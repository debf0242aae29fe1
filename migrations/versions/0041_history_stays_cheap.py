"""Indexes for what is asked all the time of what runs now, so that it does not read everything that ever ran.

Nothing but reads changes, so a previous release goes on as before.
"""

from __future__ import annotations

from alembic import op

revision = "0041"
down_revision = "0037"
branch_labels = None
depends_on = None

INDEXES = (
    ("requests", ("parent_id", "created_at")),
    ("sessions", ("state",)),
    ("instances", ("state",)),
    ("ledger_entries", ("instance_id",)),
)


def upgrade() -> None:
    """Create them."""
    for table, columns in INDEXES:
        op.create_index("_".join(["ix", table, *columns]), table, list(columns))


def downgrade() -> None:
    """Drop them."""
    for table, columns in reversed(INDEXES):
        op.drop_index("_".join(["ix", table, *columns]), table_name=table)
