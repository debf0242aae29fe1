"""An instance's account may change, and only where the journal says so: another key of the same account.

A previous release changes no account, so it runs as before.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

FIXED = "id, session_id, request_id, grant_id, n, label, cloud"
SAID = "an instance keeps its grant, request, session, label and account"
NEEDS_EVENT = "an instance changes its account only by a move that the journal tells of"
TOLD = """EXISTS (
  SELECT 1 FROM events
  WHERE subject = NEW.id AND kind = 'instance.account_moved' AND "before" = OLD.account AND "after" = NEW.account)"""
MOVES = "instances_account_moves"


def upgrade() -> None:
    """Take the account out of what is fixed, and guard it by the journal."""
    _fixed(FIXED)
    if _on_postgresql():
        refused = f"RAISE EXCEPTION '{NEEDS_EVENT}' USING ERRCODE = 'restrict_violation';"
        body = f"BEGIN IF NOT {TOLD} THEN {refused} END IF; RETURN NEW; END"
        op.execute(
            sa.text(f"CREATE FUNCTION instance_account_moves() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
        )
        when = "BEFORE UPDATE OF account ON instances FOR EACH ROW EXECUTE FUNCTION instance_account_moves()"
        op.execute(sa.text(f"CREATE TRIGGER {MOVES} {when}"))
    else:
        when = f"BEFORE UPDATE OF account ON instances WHEN NOT {TOLD}"
        op.execute(sa.text(f"CREATE TRIGGER {MOVES} {when} BEGIN SELECT RAISE(ABORT, '{NEEDS_EVENT}'); END"))


def downgrade() -> None:
    """The account is fixed again."""
    _drop(MOVES)
    if _on_postgresql():
        op.execute(sa.text("DROP FUNCTION instance_account_moves()"))
    _fixed(f"{FIXED}, account")


def _on_postgresql() -> bool:
    return op.get_context().dialect.name == "postgresql"


def _drop(name: str) -> None:
    op.execute(sa.text(f"DROP TRIGGER {name} ON instances" if _on_postgresql() else f"DROP TRIGGER {name}"))


def _fixed(columns: str) -> None:
    """The trigger that refuses other values in these columns."""
    _drop("instances_fixed")
    when = f"CREATE TRIGGER instances_fixed BEFORE UPDATE OF {columns} ON instances"
    if _on_postgresql():
        op.execute(sa.text(f"{when} FOR EACH ROW EXECUTE FUNCTION ledger_refuse('{SAID}')"))
    else:
        op.execute(sa.text(f"{when} BEGIN SELECT RAISE(ABORT, '{SAID}'); END"))
