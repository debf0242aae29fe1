"""Store which SSH keys belong on which machine, and the offers to transfer a session to somebody else."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, NAME, TEXT, TIME, required, table, unique_where

revision = "0056"
down_revision = "0053"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the two tables; machines from before have no rows, and get them when somebody's access changes."""
    table(
        "machine_keys",
        required(instance_id=ID, fingerprint=NAME, public_key=TEXT, person=NAME),
        required(wanted=sa.Boolean(), at_launch=sa.Boolean(), since=TIME, due_at=TIME),
        [sa.Column("placed_at", TIME), sa.Column("problem", sa.String(24))],
        key=["instance_id", "fingerprint"],
        refers={"instance_id": "instances"},
    )
    table(
        "transfers",
        required(id=ID, session_id=ID, from_owner=NAME, to_person=NAME, offered_by=NAME, state=sa.String(24)),
        required(created_at=TIME, expires_at=TIME),
        [sa.Column("closed_at", TIME)],
        refers={"session_id": "sessions"},
        indexes=[["session_id"], ["to_person"]],
    )
    unique_where("uq_transfers_offered", "transfers", "session_id", "state = 'offered'")


def downgrade() -> None:
    """Forget which keys are on machines, and who owned a session before."""
    op.drop_table("transfers")
    op.drop_table("machine_keys")
