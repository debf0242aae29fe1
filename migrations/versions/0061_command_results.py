"""Store how each command of a job's queue ended, once; a result is never changed or deleted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, TEXT, TIME, WHOLE, optional, refuse_changes, required, table

revision = "0061"
down_revision = "0060"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table. Jobs of before have no queue."""
    table(
        "command_results",
        required(session_id=ID, number=WHOLE, instance_id=ID, gpu=WHOLE),
        optional(exit_code=WHOLE),
        required(attempts=WHOLE, started_at=TIME, ended_at=TIME, log_tail=TEXT, recorded_at=TIME),
        key=["session_id", "number"],
        refers={"session_id": "sessions", "instance_id": "instances"},
        indexes=[["instance_id"]],
        also=[
            sa.CheckConstraint("number > 0", name=op.f("ck_command_results_number_positive")),
            sa.CheckConstraint("ended_at >= started_at", name=op.f("ck_command_results_ended_after_start")),
        ],
    )
    refuse_changes(
        "command_results",
        fixed="the result of a command never changes",
        kept="the result of a command is never deleted",
    )


def downgrade() -> None:
    """Forget the results; each session keeps how its job ended."""
    op.drop_table("command_results")
