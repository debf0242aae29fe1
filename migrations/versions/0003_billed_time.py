"""When the cloud was last seen not to bill the GPU, and the billed time of the storage: three columns, empty at first.

Older rows go on as before: without these times the storage is billed from the send, and a start from when it is seen.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COLUMNS = ("unbilled_at", "storage_from", "storage_until")


def upgrade() -> None:
    """Add the columns."""
    for name in COLUMNS:
        op.add_column("instances", sa.Column(name, sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop them."""
    for name in reversed(COLUMNS):
        op.drop_column("instances", name)
