"""Create the schema that every ledger starts with.

It has the id of the last of the 26 steps that it replaced, so that a ledger which took them all opens unchanged. Those
steps left three declarations shorter on SQLite (`ref VARCHAR(64)`), and SQLite checks no length.
"""

from __future__ import annotations

from migrations.baseline import record_tables, rental_tables, triggers
from migrations.run import SchemaError

revision = "0044"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create all tables, then the triggers."""
    rental_tables.create()
    record_tables.create()
    triggers.create()


def downgrade() -> None:
    """Refuse: nothing is below this revision, so going back would delete every record."""
    raise SchemaError(
        f"The ledger can't go back below revision {revision}: that would delete every request, session and cost. "
        "For an empty ledger, set GPU_SHOPPER_DATABASE_URL to a new database."
    )
