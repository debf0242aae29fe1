"""Check that no session has more machines than were approved, and that a set runs whole or not at all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Decimal

from bot.services.audit.invariants.world import Violation
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import ENDABLE_SESSION, OPEN_INSTANCE, PART_OF_SET, SessionState
from ledger.models import GrantRow, Instance
from ledger.queries.audit import Books
from ledger.queries.runs.machines import machines

WHOLE = "a set runs whole or not at all"
APPROVED = "never a machine more than approved"


def check(books: Books) -> list[Violation]:
    """Check the number of machines and of their grants, and that those of one set lie together."""
    return [*_machines(books), *_grants(books), *_sets(books)]


def _machines(books: Books) -> Iterator[Violation]:
    """Check that a session has at most one open row per machine that was approved for it.

    A machine that is kept beside its replacement does not count: it only keeps its disk.
    """
    set_aside = {grace.instance_id for grace in books.graces if grace.replaced}
    rows = Counter(row.session_id for row in books.instances if row.state in OPEN_INSTANCE and row.id not in set_aside)
    for session in books.sessions:
        if rows[session.id] > session.nodes:
            yield Violation(APPROVED, session.id, f"{rows[session.id]} machines are open, {session.nodes} approved")


def _grants(books: Books) -> Iterator[Violation]:
    """Check that the grants of one approval together are inside it: one for each machine, and no dollar more."""
    sessions = {one.id: one for one in books.sessions}
    found: defaultdict[str, list[GrantRow]] = defaultdict(list)
    for grant in books.grants:
        if grant.kind == GrantKind.CREATE:
            found[grant.approval_id].append(grant)
    for approval in books.approvals:
        mine = found[approval.id]
        session = sessions.get(str(mine[0].session_id)) if mine else None
        if session is None:
            continue
        if len(mine) > session.nodes:
            yield Violation(APPROVED, approval.id, f"it has {len(mine)} grants for {session.nodes} machines")
        pairs = (
            ("dollars", sum((one.total_cap_usd for one in mine), Decimal(0)), approval.total_cap_usd),
            ("dollars per hour", sum((one.price_cap_usd_h for one in mine), Decimal(0)), approval.price_cap_usd_h),
        )
        for what, together, limit in pairs:
            if limit is not None and together > limit:
                yield Violation(APPROVED, approval.id, f"its grants cover {together} {what} of {limit}")


def _sets(books: Books) -> Iterator[Violation]:
    rows: defaultdict[str, list[Instance]] = defaultdict(list)
    for row in books.instances:
        rows[row.session_id].append(row)
    for session in (one for one in books.sessions if one.nodes > 1):
        mine = machines(rows[session.id])
        if sorted(row.node_rank if row.node_rank is not None else -1 for row in mine) != list(range(session.nodes)):
            yield Violation(WHOLE, session.id, "its machines do not have one rank each")
        if len({(row.cloud, row.account, row.offer.get("region")) for row in mine}) > 1:
            yield Violation(WHOLE, session.id, "its machines are not at one cloud in one region")
        whole = not session.dealt_commands
        if whole and session.state is SessionState.RUNNING and any(row.reachable_at is None for row in mine):
            yield Violation(WHOLE, session.id, "it runs, and not all of its machines were ready")


def settled(books: Books) -> Iterator[Violation]:
    """Check that every set that lacks a machine is ending."""
    parts = Counter(row.session_id for row in books.instances if row.state in PART_OF_SET)
    for session in books.sessions:
        least = 1 if session.dealt_commands else session.nodes
        if session.nodes > 1 and session.state in ENDABLE_SESSION and parts[session.id] < least:
            yield Violation(WHOLE, session.id, f"it is {session.state} with {parts[session.id]} of {session.nodes}")
