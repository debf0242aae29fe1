"""Store which run a request continues, who asked by an agent, and what approvals were judged by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, USD

revision = "0072"
down_revision = "0071"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, and name the run of every request that an earlier release made to move one."""
    op.add_column("requests", sa.Column("run_id", ID, nullable=True))
    op.add_column("requests", sa.Column("by_agent", sa.Boolean(), nullable=True))
    op.create_index("ix_requests_run_id", "requests", ["run_id"])
    op.add_column("options", sa.Column("required_approvals", sa.Integer(), nullable=True))
    op.add_column("approvals", sa.Column("two_above_usd", USD, nullable=True))
    connection = op.get_bind()
    moves = connection.execute(
        sa.text("SELECT request_id, source_request_id FROM migrations ORDER BY created_at, id")
    ).all()
    runs: dict[str, str] = {}
    for target, source in moves:  # A run that moved twice keeps the id of its first request.
        runs[target] = runs.get(source, source)
        change = sa.text("UPDATE requests SET run_id = :run WHERE id = :target")
        connection.execute(change, {"run": runs[target], "target": target})


def downgrade() -> None:
    """Drop the columns. Each session is then judged alone, as before."""
    op.drop_index("ix_requests_run_id", "requests")
    for table, name in (
        ("approvals", "two_above_usd"),
        ("options", "required_approvals"),
        ("requests", "by_agent"),
        ("requests", "run_id"),
    ):
        op.drop_column(table, name)
