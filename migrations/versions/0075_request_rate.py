"""Store how many requests each person made, and which requests are shown in the message of an earlier one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, NAME, TIME, WHOLE, required, table

revision = "0075"
down_revision = "0074"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the columns. Earlier requests are not counted, which matters for an hour."""
    table(
        "counted_requests",
        required(request_id=ID, person=NAME, counted_as=NAME, at=TIME),
        key=("request_id", "person"),
        refers={"request_id": "requests"},
        indexes=[("person", "counted_as", "at")],
    )
    op.add_column("requests", sa.Column("card_of", ID, nullable=True))
    op.add_column("requests", sa.Column("card_turn", WHOLE, nullable=True))
    op.create_index("uq_requests_card_of_card_turn", "requests", ["card_of", "card_turn"], unique=True)


def downgrade() -> None:
    """Drop them. Each request then has a message of its own again, and only the open ones are counted."""
    op.drop_index("uq_requests_card_of_card_turn", table_name="requests")
    op.drop_column("requests", "card_turn")
    op.drop_column("requests", "card_of")
    op.drop_table("counted_requests")
