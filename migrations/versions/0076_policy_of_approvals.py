"""Store the policy's limit on hours and its approval tiers with each approval."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import JSON

revision = "0076"
down_revision = "0075"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Earlier approvals stay without it, and are not audited by it."""
    op.add_column("approvals", sa.Column("policy_limits", JSON, nullable=True))


def downgrade() -> None:
    """Drop it. The audit then looks at the limit for two approvers only, as before."""
    op.drop_column("approvals", "policy_limits")
