"""Store from which checkpoint each replacement of a lost machine continues; a resume point is never changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, TEXT, TIME, USD, WHOLE, optional, refuse_changes, required, table

revision = "0062"
down_revision = "0061"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table. Replacements of before have no resume point, and need none."""
    table(
        "resume_points",
        required(instance_id=ID, session_id=ID, lost_instance_id=ID, path=TEXT),
        optional(step=sa.BigInteger(), size_bytes=sa.BigInteger(), saved_at=TIME),
        required(lost_at=TIME, lost_s=WHOLE, lost_usd=USD, said=TEXT, found_at=TIME),
        key=["instance_id"],
        refers={"instance_id": "instances", "session_id": "sessions"},
        indexes=[["session_id"]],
        also=[sa.CheckConstraint("lost_s >= 0", name=op.f("ck_resume_points_lost_not_negative"))],
    )
    refuse_changes("resume_points", fixed="a resume point never changes", kept="a resume point is never deleted")


def downgrade() -> None:
    """Forget the resume points; the audit log has them."""
    op.drop_table("resume_points")
