"""Check migrations: one trainer for a run, one copy at least, and no step that is forgotten."""

from __future__ import annotations

from collections.abc import Iterator

from bot.rules.nodes.checkins import Work
from bot.rules.nodes.job_state import RUN
from bot.rules.nodes.machine_report import StepOutcome
from bot.services.audit.invariants.world import Violation
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import OPEN_INSTANCE, SessionState
from ledger.kernel.steps.migration_step import FOLLOWS, OVER, TARGET_MAY_RUN, MigrationStep
from ledger.models import Migration, Node
from ledger.queries.audit import Books

_TRAINS = frozenset({Work.RUNNING, Work.SAVING})
_ENDED = frozenset({SessionState.TERMINATED, SessionState.FAILED})


def check(books: Books) -> list[Violation]:
    """Check every migration, by what the agents of both machines reported last."""
    return [one for row in books.migrations for one in _check(books, row)]


def _check(books: Books, row: Migration) -> Iterator[Violation]:
    sessions = {one.id: one for one in books.sessions}
    source = sessions[row.source_session_id]
    target = next((one for one in books.sessions if one.request_id == row.request_id), None)
    if (row.step in OVER) != (row.due_at is None):
        yield Violation("a migration is checked until it ended", row.id, f"it is {row.step}, due {row.due_at}")
    if not row.saved_from or row.saved_bytes <= 0:
        yield Violation("a run that moves has a verified copy", row.id, "no verified save is stored")
    if row.step in TARGET_MAY_RUN and any(_trains(node, row) for node in _open_nodes(books, source.id)):
        yield Violation("one trainer for a run", row.id, f"the source trains, and the target may since {row.step}")
    held = target is not None and row.started_at is None
    if held and target is not None and any(_started(node) for node in _open_nodes(books, target.id)):
        yield Violation("one trainer for a run", row.id, f"the target started at {row.step}")
    if row.step in (MigrationStep.DESTROYED, MigrationStep.DONE) and source.state not in _ENDED:
        yield Violation("the old machine is gone when a run has moved", row.id, f"its session is {source.state}")
    yield from _steps(books, row)


def _open_nodes(books: Books, session_id: str) -> Iterator[Node]:
    rows = {one.id for one in books.instances if one.session_id == session_id and one.state in OPEN_INSTANCE}
    return (node for node in books.nodes if node.instance_id in rows)


def _trains(node: Node, row: Migration) -> bool:
    """Whether the source's agent reported since the target may start that its job works."""
    return node.at is not None and row.started_at is not None and node.at > row.started_at and node.work in _TRAINS


def _started(node: Node) -> bool:
    return any(step["name"] == RUN and step["state"] == StepOutcome.DONE for step in node.report.get("steps", ()))


def _steps(books: Books, row: Migration) -> Iterator[Violation]:
    """Check that the journal has every step once, in an order that is allowed, up to the step of now."""
    mine = [one for one in books.events if one.kind == EventKind.MIGRATION_STEP and one.subject == row.id]
    at = None
    for event in sorted(mine, key=lambda one: (one.at, one.id)):
        if at is not None and event.after not in FOLLOWS[at]:
            yield Violation("a migration moves step by step", row.id, f"{event.after} followed {at}")
        at = MigrationStep(event.after)
    if at is not row.step:
        yield Violation("a migration moves step by step", row.id, f"it is {row.step}, and the audit log says {at}")
