"""Check migrations: one trainer for a run, one copy at least, and no step that is forgotten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bot.rules.migrations.machines import TRAINS
from bot.rules.nodes.machine_report import RUN, StepOutcome
from bot.services.audit.invariants.world import Violation
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import ENDED_SESSION, OPEN_INSTANCE
from ledger.kernel.steps.migration_step import FOLLOWS, OVER, TARGET_MAY_RUN, MigrationStep
from ledger.models import Event, Migration, Node, Session
from ledger.queries.audit import Books


def check(books: Books) -> list[Violation]:
    """Check every migration, by what the agents of both machines reported last."""
    if not books.migrations:
        return []
    facts = _Facts.of(books)
    return [one for row in books.migrations for one in _check(facts, row)]


@dataclass(frozen=True, slots=True)
class _Facts:
    """The books by what a migration names, read once for all of them."""

    sessions: Mapping[str, Session]
    by_request: Mapping[str, Session]
    #: The agents on a session's open machines.
    nodes: Mapping[str, Sequence[Node]]
    events: Mapping[str, Sequence[Event]]

    @classmethod
    def of(cls, books: Books) -> _Facts:
        """Read them."""
        session_of = {one.id: one.session_id for one in books.instances if one.state in OPEN_INSTANCE}
        nodes: defaultdict[str, list[Node]] = defaultdict(list)
        for node in books.nodes:
            if node.instance_id in session_of:
                nodes[session_of[node.instance_id]].append(node)
        events: defaultdict[str, list[Event]] = defaultdict(list)
        for event in books.events:
            if event.kind == EventKind.MIGRATION_STEP:
                events[event.subject].append(event)
        sessions = {one.id: one for one in books.sessions}
        return cls(sessions, {one.request_id: one for one in books.sessions}, nodes, events)


def _check(facts: _Facts, row: Migration) -> Iterator[Violation]:
    source, target = facts.sessions[row.source_session_id], facts.by_request.get(row.request_id)
    if (row.step in OVER) != (row.due_at is None):
        yield Violation("a migration is checked until it ended", row.id, f"it is {row.step}, due {row.due_at}")
    if not row.saved_from or row.saved_bytes <= 0:
        yield Violation("a run that moves has a verified copy", row.id, "no verified save is stored")
    if row.step in TARGET_MAY_RUN and any(_trains(node, row) for node in facts.nodes.get(source.id, ())):
        yield Violation("one trainer for a run", row.id, f"the source trains, and the target may since {row.step}")
    held = target is not None and row.started_at is None
    if held and target is not None and any(_started(node) for node in facts.nodes.get(target.id, ())):
        yield Violation("one trainer for a run", row.id, f"the target started at {row.step}")
    if row.step in (MigrationStep.DESTROYED, MigrationStep.DONE) and source.state not in ENDED_SESSION:
        yield Violation("the old machine is gone when a run has moved", row.id, f"its session is {source.state}")
    yield from _steps(facts.events.get(row.id, ()), row)


def _trains(node: Node, row: Migration) -> bool:
    """Whether the source's agent reported since the target may start that its job works."""
    return node.at is not None and row.started_at is not None and node.at > row.started_at and node.work in TRAINS


def _started(node: Node) -> bool:
    return any(step["name"] == RUN and step["state"] == StepOutcome.DONE for step in node.report.get("steps", ()))


def _steps(events: Sequence[Event], row: Migration) -> Iterator[Violation]:
    """Check that the journal has every step once, in an order that is allowed, up to the step of now."""
    at = None
    for event in sorted(events, key=lambda one: (one.at, one.id)):
        if at is not None and event.after not in FOLLOWS[at]:
            yield Violation("a migration moves step by step", row.id, f"{event.after} followed {at}")
        at = MigrationStep(event.after)
    if at is not row.step:
        yield Violation("a migration moves step by step", row.id, f"it is {row.step}, and the audit log says {at}")
