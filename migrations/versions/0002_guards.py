"""Guards that hold whatever the program does: append-only tables, fixed grants, and no instance without approvals.

Law 8 of the design: nobody spends without a recorded decision that covers that spend. A requester may be an approver
where the policy allows it, so that is judged by the rules and not here.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

APPEND_ONLY = ("ledger_entries", "events", "approvals")
#: What a grant may become: its state, its version, and the session it was given to.
FIXED_IN_GRANT = "id, request_id, approval_id, kind, seq, price_cap_usd_h, total_cap_usd, hours, until, created_at"
#: An instance that changed its grant would spend on another's authority; its label is on the instance at the cloud.
FIXED_IN_INSTANCE = "id, session_id, request_id, grant_id, n, label, cloud, account"

GRANT_IS_FIXED = "a grant's amounts and origin never change"
INSTANCE_IS_FIXED = "an instance keeps its grant, request, session, label and account"
NEEDS_GRANT = "an instance needs an open or used grant of its own request"
NEEDS_APPROVALS = "a grant needs enough approvals of its request's quote version, and no rejection"

HAS_GRANT = "SELECT 1 FROM grants WHERE id = NEW.grant_id AND request_id = NEW.request_id AND state IN ('open', 'used')"
#: True when the approval that the grant names, with the others of its version, reaches the number asked for.
HAS_APPROVALS = """
EXISTS (
  SELECT 1 FROM approvals AS named JOIN requests ON requests.id = named.request_id
  WHERE named.id = NEW.approval_id AND named.request_id = NEW.request_id AND named.decision = 'approve'
    AND requests.required_approvals <= (
      SELECT count(DISTINCT vote.approver) FROM approvals AS vote
      WHERE vote.request_id = named.request_id AND vote.quote_version = named.quote_version
        AND vote.decision = 'approve')
    AND NOT EXISTS (
      SELECT 1 FROM approvals AS vote
      WHERE vote.request_id = named.request_id AND vote.quote_version = named.quote_version
        AND vote.decision = 'reject'))
"""


def upgrade() -> None:
    """Create the triggers in the dialect at hand."""
    for statement in _postgresql() if _on_postgresql() else _sqlite():
        op.execute(sa.text(statement))


def downgrade() -> None:
    """Drop the triggers; the tables stay."""
    on_postgresql = _on_postgresql()
    for name, table in _names(on_postgresql):
        op.execute(sa.text(f"DROP TRIGGER {name} ON {table}" if on_postgresql else f"DROP TRIGGER {name}"))
    if on_postgresql:
        for function in ("ledger_refuse", "instance_needs_grant", "grant_needs_approvals"):
            op.execute(sa.text(f"DROP FUNCTION {function}()"))


def _on_postgresql() -> bool:
    return op.get_context().dialect.name == "postgresql"


def _names(on_postgresql: bool) -> list[tuple[str, str]]:
    """Every trigger as `(name, table)`."""
    refused = ("update", "delete", "truncate") if on_postgresql else ("update", "delete")
    names = [(f"{table}_no_{what}", table) for table in APPEND_ONLY for what in refused]
    names += [(f"{table}_no_{what}", table) for table in ("grants", "instances") for what in refused[1:]]
    names += [(f"{table}_fixed", table) for table in ("grants", "instances")]
    return [*names, ("instances_need_grant", "instances"), ("grants_need_approvals", "grants")]


def _sqlite() -> list[str]:
    def refuse(name: str, when: str, message: str) -> str:
        quoted = message.replace("'", "''")
        return f"CREATE TRIGGER {name} BEFORE {when} BEGIN SELECT RAISE(ABORT, '{quoted}'); END"

    made = []
    for table in APPEND_ONLY:
        made += [
            refuse(f"{table}_no_{what}", f"{what.upper()} ON {table}", f"{table} is append-only")
            for what in ("update", "delete")
        ]
    return [
        *made,
        refuse("grants_no_delete", "DELETE ON grants", "a grant is never deleted"),
        refuse("instances_no_delete", "DELETE ON instances", "an instance row is never deleted"),
        refuse("grants_fixed", f"UPDATE OF {FIXED_IN_GRANT} ON grants", GRANT_IS_FIXED),
        refuse("instances_fixed", f"UPDATE OF {FIXED_IN_INSTANCE} ON instances", INSTANCE_IS_FIXED),
        refuse("instances_need_grant", f"INSERT ON instances WHEN NOT EXISTS ({HAS_GRANT})", NEEDS_GRANT),
        refuse("grants_need_approvals", f"INSERT ON grants WHEN NOT {HAS_APPROVALS}", NEEDS_APPROVALS),
    ]


def _postgresql() -> list[str]:
    def refuse(name: str, when: str, message: str, each: str = "ROW") -> str:
        quoted = message.replace("'", "''")
        return f"CREATE TRIGGER {name} BEFORE {when} FOR EACH {each} EXECUTE FUNCTION ledger_refuse('{quoted}')"

    made = [_function("ledger_refuse", "RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';")]
    for table in APPEND_ONLY:
        said = f"{table} is append-only"
        made += [refuse(f"{table}_no_{what}", f"{what.upper()} ON {table}", said) for what in ("update", "delete")]
        made.append(refuse(f"{table}_no_truncate", f"TRUNCATE ON {table}", said, "STATEMENT"))
    for table, said in (("grants", "a grant is never deleted"), ("instances", "an instance row is never deleted")):
        made.append(refuse(f"{table}_no_delete", f"DELETE ON {table}", said))
        made.append(refuse(f"{table}_no_truncate", f"TRUNCATE ON {table}", said, "STATEMENT"))
    made.append(refuse("grants_fixed", f"UPDATE OF {FIXED_IN_GRANT} ON grants", GRANT_IS_FIXED))
    made.append(refuse("instances_fixed", f"UPDATE OF {FIXED_IN_INSTANCE} ON instances", INSTANCE_IS_FIXED))
    # The lock makes a grant that is being voided at this moment count as void.
    made.append(
        _function(
            "instance_needs_grant",
            f"PERFORM {HAS_GRANT.removeprefix('SELECT ')} FOR SHARE;" + _unless("FOUND", NEEDS_GRANT),
        )
    )
    made.append(_function("grant_needs_approvals", _unless(HAS_APPROVALS, NEEDS_APPROVALS)))
    for name, table, function in (
        ("instances_need_grant", "instances", "instance_needs_grant"),
        ("grants_need_approvals", "grants", "grant_needs_approvals"),
    ):
        made.append(f"CREATE TRIGGER {name} BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {function}()")
    return made


def _unless(condition: str, message: str) -> str:
    quoted = message.replace("'", "''")
    return f" IF NOT {condition} THEN RAISE EXCEPTION '{quoted}' USING ERRCODE = 'restrict_violation'; END IF;"


def _function(name: str, body: str) -> str:
    return f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$"
