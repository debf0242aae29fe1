"""Webhooks and their deliveries: two new tables, so that the previous release goes on beside this one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("actor", sa.String(96), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("topics", JSON, nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("everything", sa.Boolean(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("old_secret", sa.Text()),
        sa.Column("old_until", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", sa.String(96), nullable=False),
        sa.Column("seen_at", TIME, nullable=False),
        sa.Column("off_at", TIME),
        sa.Column("off_reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
    )
    op.create_index("ix_webhooks_actor", "webhooks", ["actor"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("webhook_id", sa.String(24), nullable=False),
        sa.Column("event_id", sa.String(24), nullable=False),
        sa.Column("kind", sa.String(48), nullable=False),
        sa.Column("state", sa.String(24), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("attempts", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("sent_at", TIME),
        sa.Column("due_at", TIME),
        sa.Column("claim_token", sa.String(32)),
        sa.Column("claim_until", TIME),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name="fk_webhook_deliveries_webhook_id_webhooks", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_deliveries"),
        sa.UniqueConstraint("webhook_id", "event_id", name="uq_webhook_deliveries_webhook_id_event_id"),
    )
    op.create_index("ix_webhook_deliveries_due_at", "webhook_deliveries", ["due_at"])


def downgrade() -> None:
    """Drop them."""
    for table in ("webhook_deliveries", "webhooks"):
        op.drop_table(table)
