"""Store migrations: moves of a run from one machine to another."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, TEXT, TIME, WHOLE, optional, required, table, unique_where

revision = "0063"
down_revision = "0062"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table. One session is the source of one open migration at most."""
    table(
        "migrations",
        required(id=ID, request_id=ID, source_session_id=ID, source_request_id=ID, step=sa.String(16), version=WHOLE),
        required(created_at=TIME, step_at=TIME),
        optional(due_at=TIME),
        required(saved_from=TEXT),
        optional(saved_step=sa.BigInteger()),
        required(saved_bytes=sa.BigInteger(), saved_at=TIME),
        optional(started_at=TIME),
        required(note=TEXT, context=TEXT),
        optional(ended_at=TIME),
        refers={"request_id": "requests", "source_session_id": "sessions", "source_request_id": "requests"},
        unique=["request_id"],
        indexes=[["source_session_id"], ["due_at"]],
    )
    unique_where("uq_migrations_open", "migrations", "source_session_id", "step NOT IN ('done', 'failed')")


def downgrade() -> None:
    """Forget migrations. The audit log keeps what became of each."""
    op.drop_table("migrations")
