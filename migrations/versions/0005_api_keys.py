"""API keys: the consumers behind them, the keys, and the stored answers of calls with an Idempotency-Key.

Three new tables and no change to an old one, so that the previous release goes on beside this one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "consumers",
        sa.Column("actor", sa.String(96), nullable=False),
        sa.Column("owner", sa.String(96), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", sa.String(96), nullable=False),
        sa.PrimaryKeyConstraint("actor", name="pk_consumers"),
    )
    op.create_index("ix_consumers_owner", "consumers", ["owner"])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("actor", sa.String(96), nullable=False),
        sa.Column("scopes", JSON, nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", sa.String(96), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("revoked_at", TIME),
        sa.Column("revoked_by", sa.String(96)),
        sa.Column("last_used_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
    )
    op.create_index("ix_api_keys_actor", "api_keys", ["actor"])
    op.create_table(
        "api_answers",
        sa.Column("key", sa.String(180), nullable=False),
        sa.Column("body_hash", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("answer", JSON),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_api_answers"),
    )
    op.create_index("ix_api_answers_created_at", "api_answers", ["created_at"])


def downgrade() -> None:
    """Drop them. Every key is lost with them."""
    for table in ("api_answers", "api_keys", "consumers"):
        op.drop_table(table)
