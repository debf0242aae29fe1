"""Create triggers that enforce the laws in the database: append-only tables, fixed grants, no instance unapproved.

Law 8 of the design: nobody spends without a recorded decision that covers that spend. A requester may be an approver
where the policy allows it, so that is judged by the rules and not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa
from alembic import op


class Refusal(NamedTuple):
    """Describe a change that the database refuses with a message, always or unless a condition is met."""

    trigger: str
    change: str
    message: str
    unless: str = ""
    #: The trigger function on PostgreSQL. Refusals without a condition share one.
    function: str = "ledger_refuse"


APPEND_ONLY = ("ledger_entries", "events", "approvals")
GRANT_KEPT = "a grant is never deleted"
INSTANCE_KEPT = "an instance row is never deleted"
#: A grant may change its state, its version, and the session it was given to.
FIXED_IN_GRANT = "id, request_id, approval_id, kind, seq, price_cap_usd_h, total_cap_usd, hours, until, created_at"
#: An instance that changed its grant would spend on another's authority; its label is on the instance at the cloud.
FIXED_IN_INSTANCE = "id, session_id, request_id, grant_id, n, label, cloud"
HAS_GRANT = "1 FROM grants WHERE id = NEW.grant_id AND request_id = NEW.request_id AND state IN ('open', 'used')"
#: True when the approval that the grant names, with the others of its version, reaches the number asked for.
HAS_APPROVALS = """EXISTS (
  SELECT 1 FROM approvals AS named JOIN requests ON requests.id = named.request_id
  WHERE named.id = NEW.approval_id AND named.request_id = NEW.request_id AND named.decision = 'approve'
    AND requests.required_approvals <= (
      SELECT count(DISTINCT vote.approver) FROM approvals AS vote
      WHERE vote.request_id = named.request_id AND vote.quote_version = named.quote_version
        AND vote.decision = 'approve')
    AND NOT EXISTS (
      SELECT 1 FROM approvals AS vote
      WHERE vote.request_id = named.request_id AND vote.quote_version = named.quote_version
        AND vote.decision = 'reject'))"""
HAS_MOVE_EVENT = """EXISTS (
  SELECT 1 FROM events
  WHERE subject = NEW.id AND kind = 'instance.account_moved' AND "before" = OLD.account AND "after" = NEW.account)"""

REFUSALS = (
    *(
        Refusal(f"{table}_no_{change.lower()}", f"{change} ON {table}", f"{table} is append-only")
        for table in APPEND_ONLY
        for change in ("UPDATE", "DELETE")
    ),
    Refusal("grants_no_delete", "DELETE ON grants", GRANT_KEPT),
    Refusal("instances_no_delete", "DELETE ON instances", INSTANCE_KEPT),
    Refusal("grants_fixed", f"UPDATE OF {FIXED_IN_GRANT} ON grants", "a grant's amounts and origin never change"),
    Refusal(
        "instances_need_grant",
        "INSERT ON instances",
        "an instance needs an open or used grant of its own request",
        f"EXISTS (SELECT {HAS_GRANT})",
        "instance_needs_grant",
    ),
    Refusal(
        "grants_need_approvals",
        "INSERT ON grants",
        "a grant needs enough approvals of its request's quote version, and no rejection",
        HAS_APPROVALS,
        "grant_needs_approvals",
    ),
    Refusal(
        "instances_fixed",
        f"UPDATE OF {FIXED_IN_INSTANCE} ON instances",
        "an instance keeps its grant, request, session, label and account",
    ),
    Refusal(
        "instances_account_moves",
        "UPDATE OF account ON instances",
        "an instance changes its account only by a move that the journal tells of",
        HAS_MOVE_EVENT,
        "instance_account_moves",
    ),
)
#: PostgreSQL alone can empty a table at once.
TRUNCATED = (
    *((table, f"{table} is append-only") for table in APPEND_ONLY),
    ("grants", GRANT_KEPT),
    ("instances", INSTANCE_KEPT),
)
#: Each new entry is noted, so that the totals take it in.
NOTE_ENTRY = "INSERT INTO unrolled (entry_id, at) VALUES (NEW.id, NEW.at);"
ENTRIES_NOTED = "CREATE TRIGGER ledger_entries_unrolled AFTER INSERT ON ledger_entries"


def create() -> None:
    """Create the triggers, and on PostgreSQL their functions."""
    for statement in _postgresql() if op.get_context().dialect.name == "postgresql" else _sqlite():
        op.execute(sa.text(statement))


def _sqlite() -> Iterator[str]:
    for one in REFUSALS:
        when = f" WHEN NOT {one.unless}" if one.unless else ""
        refused = f"BEGIN SELECT RAISE(ABORT, {_quoted(one.message)}); END"
        yield f"CREATE TRIGGER {one.trigger} BEFORE {one.change}{when} {refused}"
    yield f"{ENTRIES_NOTED} BEGIN {NOTE_ENTRY} END"


def _postgresql() -> Iterator[str]:
    refused = "USING ERRCODE = 'restrict_violation';"
    yield _function("ledger_refuse", f"RAISE EXCEPTION '%', TG_ARGV[0] {refused} RETURN NEW;")
    for one in REFUSALS:
        if one.unless:
            look, met = "", one.unless
            if one.function == "instance_needs_grant":
                # The lock makes a grant that is being voided at this moment count as void.
                look, met = f"PERFORM {HAS_GRANT} FOR SHARE; ", "FOUND"
            raised = f"RAISE EXCEPTION {_quoted(one.message)} {refused}"
            yield _function(one.function, f"{look}IF NOT {met} THEN {raised} END IF; RETURN NEW;")
        said = "" if one.unless else _quoted(one.message)
        yield f"CREATE TRIGGER {one.trigger} BEFORE {one.change} FOR EACH ROW EXECUTE FUNCTION {one.function}({said})"
    for table, message in TRUNCATED:
        each = f"FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse({_quoted(message)})"
        yield f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} {each}"
    yield _function("ledger_note_entry", f"{NOTE_ENTRY} RETURN NULL;")
    yield f"{ENTRIES_NOTED} FOR EACH ROW EXECUTE FUNCTION ledger_note_entry()"


def _function(name: str, body: str) -> str:
    return f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"


def _quoted(message: str) -> str:
    doubled = message.replace("'", "''")
    return f"'{doubled}'"
