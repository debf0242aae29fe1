"""Store requests that wait for an offer, and the approvals of their limits in advance."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import (
    HOURS,
    ID,
    JSON,
    NAME,
    STATE,
    TEXT,
    TIME,
    USD,
    WHOLE,
    optional,
    refuse_changes,
    required,
    table,
)

revision = "0057"
down_revision = "0056"
branch_labels = None
depends_on = None

#: An approval in advance may change its state and its version, and nothing else.
FIXED = (
    "id, request_id, approver, on_behalf_of, owner, label, gpu, hours, price_cap_usd_h, total_cap_usd, until, tier, "
    "confirmed_usd, rule, at"
)


def upgrade() -> None:
    """Create both tables, and link an approval with the one in advance that it was made of, each at most once."""
    table(
        "wait_limits",
        required(request_id=ID, from_at=TIME, until=TIME, gpu=JSON, hours=HOURS),
        optional(price_cap_usd_h=USD, total_cap_usd=USD),
        required(misses=WHOLE),
        key=["request_id"],
        refers={"request_id": "requests"},
        also=[
            sa.CheckConstraint("until > from_at", name=op.f("ck_wait_limits_until_after_from")),
            sa.CheckConstraint(
                "price_cap_usd_h IS NULL OR price_cap_usd_h > 0", name=op.f("ck_wait_limits_price_positive")
            ),
            sa.CheckConstraint(
                "total_cap_usd IS NULL OR total_cap_usd > 0", name=op.f("ck_wait_limits_total_positive")
            ),
            sa.CheckConstraint("CAST(hours AS NUMERIC) > 0", name=op.f("ck_wait_limits_hours_positive")),
        ],
    )
    table(
        "advance_approvals",
        required(id=ID, request_id=ID, **STATE, approver=NAME),
        optional(on_behalf_of=NAME),
        required(owner=NAME, label=sa.String(40), gpu=JSON, hours=HOURS, price_cap_usd_h=USD, total_cap_usd=USD),
        required(until=TIME, tier=NAME),
        optional(confirmed_usd=USD),
        required(rule=TEXT, at=TIME),
        refers={"request_id": "requests"},
        indexes=[["request_id"]],
        also=[
            sa.CheckConstraint("until > at", name=op.f("ck_advance_approvals_until_after_at")),
            sa.CheckConstraint("price_cap_usd_h > 0", name=op.f("ck_advance_approvals_price_positive")),
            sa.CheckConstraint("total_cap_usd > 0", name=op.f("ck_advance_approvals_total_positive")),
            sa.CheckConstraint("CAST(hours AS NUMERIC) > 0", name=op.f("ck_advance_approvals_hours_positive")),
        ],
    )
    is_open = sa.text("state = 'open'")
    among = ["request_id", "approver"]
    op.create_index(
        "uq_advance_approvals_open",
        "advance_approvals",
        among,
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.add_column("approvals", sa.Column("source_approval_id", ID, nullable=True))
    op.create_index("uq_approvals_source_approval_id", "approvals", ["source_approval_id"], unique=True)
    refuse_changes(
        "advance_approvals",
        fixed="an approval in advance never changes what it covers",
        kept="an approval in advance is never deleted",
        change=f"UPDATE OF {FIXED}",
    )


def downgrade() -> None:
    """Forget what waits; an approval that was made of one in advance stays."""
    op.drop_index("uq_approvals_source_approval_id", "approvals")
    op.drop_column("approvals", "source_approval_id")
    op.drop_table("advance_approvals")
    op.drop_table("wait_limits")
