"""Let several machines share one queue: how many commands are dealt to them, and which machine has which."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, TIME, WHOLE, refuse_changes, required, table

revision = "0065"
down_revision = "0064"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the table. Every queue of before has one machine."""
    op.add_column("sessions", sa.Column("dealt_commands", sa.Integer(), nullable=False, server_default="0"))
    table(
        "command_claims",
        required(session_id=ID, number=WHOLE, round=WHOLE, instance_id=ID, dealt_at=TIME),
        key=["session_id", "number", "round"],
        refers={"session_id": "sessions", "instance_id": "instances"},
        indexes=[["instance_id"]],
        also=[sa.CheckConstraint("number > 0 AND round >= 0", name=op.f("ck_command_claims_counted"))],
    )
    refuse_changes(
        "command_claims",
        fixed="to which machine a command was dealt never changes",
        kept="to which machine a command was dealt is never deleted",
    )


def downgrade() -> None:
    """Forget which machine had which command. End the sessions whose machines share a queue before."""
    op.drop_table("command_claims")
    op.drop_column("sessions", "dealt_commands")
