"""Store the machines that stopped working and are kept, because waiting is cheap and something would be lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, NAME, TIME, USD, optional, required, table, unique_where

revision = "0069"
down_revision = "0068"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table. The release before ends such machines after ten minutes, as it always did."""
    table(
        "graces",
        required(id=ID, instance_id=ID, session_id=ID, code=sa.String(32), cause=sa.String(16), at_risk=sa.String(16)),
        required(
            account_code=sa.String(32), since=TIME, until=TIME, usd_h=USD, rated_at=TIME, spent_usd=USD, limit_usd=USD
        ),
        optional(choice=sa.String(16), chosen_by=NAME),
        required(replaced=sa.Boolean()),
        optional(ended_at=TIME, outcome=sa.String(16)),
        refers={"instance_id": "instances", "session_id": "sessions"},
        indexes=[["session_id"]],
    )
    unique_where("uq_graces_open", "graces", "instance_id", "ended_at IS NULL")


def downgrade() -> None:
    """Forget which machines are kept. Give up those beside a replacement before."""
    op.drop_table("graces")
