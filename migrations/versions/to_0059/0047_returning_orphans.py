"""Let an instance be recorded as an orphan again after it counted as gone, and keep the address of its SSH server."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

OLD = "uq_orphans_cloud_account_ref"
NEW = "uq_orphans_open"
WHERE = "state != 'gone'"
KEY = ["cloud", "account", "ref"]
ADDRESS: Mapping[str, sa.String | sa.Integer] = {"ssh_host": sa.String(255), "ssh_port": sa.Integer()}


def upgrade() -> None:
    """Allow one open orphan per instance, and any number of closed ones."""
    with op.batch_alter_table("orphans") as orphans:
        orphans.drop_constraint(OLD, type_="unique")
        for name, kind in ADDRESS.items():
            orphans.add_column(sa.Column(name, kind))
    where = sa.text(WHERE)
    op.create_index(NEW, "orphans", KEY, unique=True, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    """Allow one orphan per instance again. Earlier ones of the same instance are kept under an id with their own."""
    op.drop_index(NEW, "orphans")
    later = "SELECT 1 FROM orphans o WHERE o.cloud = orphans.cloud AND o.account = orphans.account"
    op.execute(
        f"UPDATE orphans SET ref = substr(ref, 1, 200) || '#' || id WHERE EXISTS ({later} AND o.ref = orphans.ref"  # noqa: S608 # Our own names.
        " AND o.id > orphans.id)"
    )
    with op.batch_alter_table("orphans") as orphans:
        for name in ADDRESS:
            orphans.drop_column(name)
        orphans.create_unique_constraint(OLD, KEY)
