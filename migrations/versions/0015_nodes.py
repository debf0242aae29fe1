"""Check-ins of the machines, and ends before the approved one that were announced.

A previous release gives no machine a token and looks at none of this: it leaves every session to its approved end.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

revision = "0015"
down_revision = "0012"
branch_labels = None
depends_on = None


def _at(name: str, *, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def upgrade() -> None:
    """Create the table and add the columns, all empty."""
    op.create_table(
        "nodes",
        sa.Column("instance_id", sa.String(length=24), nullable=False),
        sa.Column("session_id", sa.String(length=24), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        _at("made_at", nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        _at("at"),
        _at("idle_since"),
        sa.Column("work", sa.String(length=16), nullable=False),
        _at("work_over_at"),
        sa.Column("report", JSON, nullable=False),
        sa.Column("wanted", JSON, nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_nodes_instance_id_instances"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_nodes_session_id_sessions"),
        sa.PrimaryKeyConstraint("instance_id", name="pk_nodes"),
    )
    op.create_index("ix_nodes_session_id", "nodes", ["session_id"])
    op.add_column("sessions", _at("cut_at"))
    op.add_column("sessions", sa.Column("cut_code", sa.String(length=32), nullable=True))
    op.add_column("sessions", sa.Column("cut_reason", sa.Text(), nullable=True))
    op.add_column("sessions", _at("spared_until"))


def downgrade() -> None:
    """Drop them."""
    for name in ("spared_until", "cut_reason", "cut_code", "cut_at"):
        op.drop_column("sessions", name)
    op.drop_index("ix_nodes_session_id", table_name="nodes")
    op.drop_table("nodes")
