"""Store the secrets that people keep for their jobs, encrypted under a key that is not in the database."""

from __future__ import annotations

from alembic import op

from migrations.baseline.table import NAME, TEXT, TIME, required, table

revision = "0058"
down_revision = "0057"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; each person has a name once."""
    table(
        "secrets",
        required(person=NAME, name=NAME, ciphertext=TEXT, created_at=TIME, updated_at=TIME),
        key=["person", "name"],
    )


def downgrade() -> None:
    """Forget every secret; jobs that name one need it stored again."""
    op.drop_table("secrets")
