"""Let a person have several SSH keys; store with whom machines are shared, and the ports that a cloud has opened."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, JSON, NAME, TEXT, TIME, required, table

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and make an owner and a fingerprint together the key of the table."""
    op.add_column("instances", sa.Column("ports", JSON, nullable=True))
    table(
        "shares",
        required(request_id=ID, person=NAME, shared_by=NAME, created_at=TIME),
        key=["request_id", "person"],
        refers={"request_id": "requests"},
        indexes=[["person"]],
    )
    _ssh_keys(["owner", "fingerprint"], "SELECT owner, fingerprint, public_key, created_at FROM ssh_keys_before")


def downgrade() -> None:
    """Keep the newest key of each person, and forget who shares; the next listing of a cloud shows its ports again."""
    _ssh_keys(
        ["owner"],
        "SELECT owner, fingerprint, public_key, created_at FROM ssh_keys_before b WHERE NOT EXISTS ("
        "SELECT 1 FROM ssh_keys_before c WHERE c.owner = b.owner AND (c.created_at > b.created_at"
        " OR (c.created_at = b.created_at AND c.fingerprint > b.fingerprint)))",
    )
    op.drop_table("shares")
    op.drop_column("instances", "ports")


def _ssh_keys(key: list[str], rows: str) -> None:
    """Build the table anew with this primary key and these rows; neither database can change the key in place."""
    op.execute("CREATE TABLE ssh_keys_before AS SELECT * FROM ssh_keys")
    op.drop_table("ssh_keys")
    table("ssh_keys", required(owner=NAME, public_key=TEXT, fingerprint=sa.String(96), created_at=TIME), key=key)
    op.execute(f"INSERT INTO ssh_keys (owner, fingerprint, public_key, created_at) {rows}")
    op.drop_table("ssh_keys_before")
