"""Number the events of the journal: one order that streams, webhooks and the hash chain follow.

A trigger notes each new event as not numbered, and one writer gives the numbers after the commit. Events that are there
already are numbered in the order of their times.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, TIME, WHOLE, optional, required, table

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

NUMBER_ALL = """
INSERT INTO event_order (position, event_id) SELECT row_number() OVER (ORDER BY at, id), id FROM events
"""
#: Each webhook continues where the revision below stopped reading for it. That one read the last minute again, because
#: an event may commit late; a second delivery of one event is never made.
BEGIN_WEBHOOKS = """
UPDATE webhooks SET position = coalesce((
  SELECT max(event_order.position) FROM event_order JOIN events ON events.id = event_order.event_id
  WHERE events.at < {later}(webhooks.created_at, {a_minute_before_seen_at})), 0)
"""
ON_SQLITE = {"later": "max", "a_minute_before_seen_at": "strftime('%Y-%m-%d %H:%M:%f', webhooks.seen_at, '-1 minute')"}
ON_POSTGRESQL = {"later": "greatest", "a_minute_before_seen_at": "webhooks.seen_at - interval '1 minute'"}
NOTE_EVENT = "INSERT INTO unnumbered_events (event_id) VALUES (NEW.id);"
NOTED = "CREATE TRIGGER events_unnumbered AFTER INSERT ON events"
REFUSED = "event_order is append-only"
CHANGES = ("UPDATE", "DELETE")


def upgrade() -> None:
    """Create the order, number what is there, and guard both by triggers."""
    number = sa.Column("position", WHOLE, autoincrement=False, nullable=False)
    table(
        "event_order",
        [number],
        required(event_id=ID),
        optional(numbered_at=TIME),
        key=["position"],
        refers={"event_id": "events"},
        unique=["event_id"],
    )
    table("unnumbered_events", required(event_id=ID), key=["event_id"])
    op.execute(NUMBER_ALL)
    op.add_column("webhooks", sa.Column("position", WHOLE, nullable=False, server_default="0"))
    is_postgresql = op.get_context().dialect.name == "postgresql"
    op.execute(BEGIN_WEBHOOKS.format(**(ON_POSTGRESQL if is_postgresql else ON_SQLITE)))
    for statement in _postgresql() if is_postgresql else _sqlite():
        op.execute(sa.text(statement))


def downgrade() -> None:
    """Delete the order; the events stay, with their times."""
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP TRIGGER events_unnumbered ON events")
        op.execute("DROP FUNCTION ledger_note_event()")
    else:
        op.execute("DROP TRIGGER events_unnumbered")
    op.drop_column("webhooks", "position")
    op.drop_table("unnumbered_events")
    op.drop_table("event_order")


def _sqlite() -> Iterator[str]:
    for change in CHANGES:
        refused = f"BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
        yield f"CREATE TRIGGER event_order_no_{change.lower()} BEFORE {change} ON event_order {refused}"
    yield f"{NOTED} BEGIN {NOTE_EVENT} END"


def _postgresql() -> Iterator[str]:
    refused = f"EXECUTE FUNCTION ledger_refuse('{REFUSED}')"
    for change in CHANGES:
        yield (f"CREATE TRIGGER event_order_no_{change.lower()} BEFORE {change} ON event_order FOR EACH ROW {refused}")
    yield f"CREATE TRIGGER event_order_no_truncate BEFORE TRUNCATE ON event_order FOR EACH STATEMENT {refused}"
    noted = f"LANGUAGE plpgsql AS $$ BEGIN {NOTE_EVENT} RETURN NULL; END $$"
    yield f"CREATE FUNCTION ledger_note_event() RETURNS trigger {noted}"
    yield f"{NOTED} FOR EACH ROW EXECUTE FUNCTION ledger_note_event()"
