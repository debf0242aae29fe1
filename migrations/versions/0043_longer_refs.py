"""Ids of instances as long as clouds make them: Kaggle's hold a user's name and a run's, up to 152 characters.

SQLite looks at no length, so nothing is done there. A previous release reads and writes the wider columns as before.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0041"
branch_labels = None
depends_on = None

TABLES = ("instances", "strays", "bill_lines")


def upgrade() -> None:
    """Widen the columns."""
    _length(256)


def downgrade() -> None:
    """Make them as short as before; refused while a longer id is there."""
    _length(64)


def _length(characters: int) -> None:
    if op.get_context().dialect.name == "postgresql":
        for table in TABLES:
            op.alter_column(table, "ref", type_=sa.String(length=characters))
