"""Store what approvals may still spend, by owner and project; triggers mark sessions in which it changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, NAME, USD, required, table

revision = "0060"
down_revision = "0059"
branch_labels = None
depends_on = None

LABEL = sa.String(48)
LIVE = "('queued', 'provisioning', 'running', 'stopped', 'terminating')"
IN_FORCE = "('open', 'used')"


class Marking(NamedTuple):
    """Describe a change after which a session is marked: when, and which session."""

    trigger: str
    change: str
    when: str
    session_id: str
    #: The trigger function on PostgreSQL.
    function: str


MARKINGS = (
    Marking("sessions_unsettled", "INSERT ON sessions", f"NEW.state IN {LIVE}", "NEW.id", "unsettle_session"),
    Marking(
        "sessions_changed_unsettled",
        "UPDATE OF state, owner, label ON sessions",
        f"(OLD.state IN {LIVE}) <> (NEW.state IN {LIVE}) OR OLD.owner <> NEW.owner "
        "OR coalesce(OLD.label, '') <> coalesce(NEW.label, '')",
        "NEW.id",
        "unsettle_session",
    ),
    Marking("grants_unsettled", "INSERT ON grants", "NEW.session_id IS NOT NULL", "NEW.session_id", "unsettle_grant"),
    Marking(
        "grants_changed_unsettled",
        "UPDATE OF state, session_id ON grants",
        f"NEW.session_id IS NOT NULL AND ((OLD.state IN {IN_FORCE}) <> (NEW.state IN {IN_FORCE}) "
        "OR coalesce(OLD.session_id, '') <> NEW.session_id)",
        "NEW.session_id",
        "unsettle_grant",
    ),
    Marking(
        "grants_left_unsettled",
        "UPDATE OF session_id ON grants",
        "OLD.session_id IS NOT NULL AND (NEW.session_id IS NULL OR OLD.session_id <> NEW.session_id)",
        "OLD.session_id",
        "unsettle_former_grant",
    ),
    Marking(
        "ledger_entries_unsettled",
        "INSERT ON ledger_entries",
        "NEW.session_id IS NOT NULL AND NEW.kind IN ('accrue', 'true_up')",
        "NEW.session_id",
        "unsettle_entry",
    ),
)
#: What a grant set aside was given back: the entry names the grant in its key.
OF_RELEASED = "SELECT session_id FROM grants WHERE id = substr(NEW.key, 9) AND session_id IS NOT NULL"
RELEASED = "NEW.key >= 'release/' AND NEW.key < 'release0'"


def upgrade() -> None:
    """Create the tables and triggers, and mark every live session."""
    table("open_spend", required(owner=NAME, label=LABEL, usd=USD, rate_usd_h=USD), key=["owner", "label"])
    table(
        "session_open_spend",
        required(session_id=ID, owner=NAME, label=LABEL, usd=USD, rate_usd_h=USD),
        key=["session_id"],
        refers={"session_id": "sessions"},
    )
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    table("unsettled_spend", [sa.Column("id", number, autoincrement=True, nullable=False)], required(session_id=ID))
    op.execute(f"INSERT INTO unsettled_spend (session_id) SELECT id FROM sessions WHERE state IN {LIVE}")  # noqa: S608
    for statement in _postgresql() if op.get_context().dialect.name == "postgresql" else _sqlite():
        op.execute(sa.text(statement))


def downgrade() -> None:
    """Drop the triggers and tables; what they hold follows from the grants and entries."""
    is_postgresql = op.get_context().dialect.name == "postgresql"
    tables = {one.trigger: one.change.rpartition(" ")[2] for one in MARKINGS}
    for trigger, of in {**tables, "ledger_entries_released": "ledger_entries"}.items():
        op.execute(f"DROP TRIGGER {trigger} ON {of}" if is_postgresql else f"DROP TRIGGER {trigger}")
    if is_postgresql:
        for function in sorted({"unsettle_released", *(one.function for one in MARKINGS)}):
            op.execute(f"DROP FUNCTION {function}()")
    for name in ("unsettled_spend", "session_open_spend", "open_spend"):
        op.drop_table(name)


def _sqlite() -> Iterator[str]:
    for one in MARKINGS:
        marked = f"INSERT INTO unsettled_spend (session_id) VALUES ({one.session_id});"  # noqa: S608
        yield f"CREATE TRIGGER {one.trigger} AFTER {one.change} WHEN {one.when} BEGIN {marked} END"
    marked = f"INSERT INTO unsettled_spend (session_id) {OF_RELEASED};"
    yield f"CREATE TRIGGER ledger_entries_released AFTER INSERT ON ledger_entries WHEN {RELEASED} BEGIN {marked} END"


def _postgresql() -> Iterator[str]:
    for name, session_id in {one.function: one.session_id for one in MARKINGS}.items():
        yield _function(name, f"VALUES ({session_id})")
    yield _function("unsettle_released", OF_RELEASED)
    for one in MARKINGS:
        run = f"EXECUTE FUNCTION {one.function}()"
        yield f"CREATE TRIGGER {one.trigger} AFTER {one.change} FOR EACH ROW WHEN ({one.when}) {run}"
    run = "EXECUTE FUNCTION unsettle_released()"
    yield (
        f"CREATE TRIGGER ledger_entries_released AFTER INSERT ON ledger_entries FOR EACH ROW WHEN ({RELEASED}) {run}"
    )


def _function(name: str, source: str) -> str:
    body = f"BEGIN INSERT INTO unsettled_spend (session_id) {source}; RETURN NULL; END"
    return f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"
