"""Disks of machines that stand still, and the wish to keep one: additions only, for the release beside this one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, and the column of the wish."""
    op.add_column("sessions", sa.Column("preserve", sa.Boolean(), nullable=True))
    op.create_table(
        "disks",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("session_id", sa.String(24), nullable=False),
        sa.Column("instance_id", sa.String(24), nullable=False),
        sa.Column("owner", sa.String(96), nullable=False),
        sa.Column("cloud", sa.String(24), nullable=False),
        sa.Column("price_usd_h", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("warned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("booked_h", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_disks_session_id_sessions"),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_disks_instance_id_instances"),
        sa.PrimaryKeyConstraint("id", name="pk_disks"),
    )
    op.create_index("ix_disks_session_id", "disks", ["session_id"])
    open_ones = sa.text("ended_at IS NULL")
    op.create_index(
        "uq_disks_open",
        "disks",
        ["instance_id"],
        unique=True,
        sqlite_where=open_ones,
        postgresql_where=open_ones,
    )


def downgrade() -> None:
    """Drop it. What the rows say follows from the instances again."""
    op.drop_table("disks")
    op.drop_column("sessions", "preserve")
