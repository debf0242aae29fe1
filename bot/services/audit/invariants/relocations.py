"""Check migrations: one trainer for a run, never fewer machines or copies than before, and no step left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.rules.nodes.machine_report import RUN
from bot.rules.relocation.machines import MEANT_ENDS, SILENT, TRAINS
from bot.rules.relocation.resume import TargetPlace
from bot.services.audit.invariants.world import Violation
from bot.wire.checkin import StepOutcome
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import ENDED_SESSION, OPEN_INSTANCE, SessionState
from ledger.kernel.steps.relocation_step import FOLLOWS, OVER, TARGET_MAY_RUN, MigrationStep
from ledger.models import Event, Migration, Node, Session
from ledger.queries.audit import Books

#: Where a session's end is ordered or proved.
_ENDS = frozenset({SessionState.TERMINATING}) | ENDED_SESSION
_STATES = frozenset(map(str, SessionState))
#: In these steps the source ended for this migration, and for no later one.
_MOVED = frozenset({MigrationStep.ADVANCED, MigrationStep.DESTROYED, MigrationStep.DONE})


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
    #: The agents on all of a session's machines.
    every_node: Mapping[str, Sequence[Node]]
    events: Mapping[str, Sequence[Event]]
    #: The states that a session came to, in order.
    states: Mapping[str, Sequence[Event]]
    #: From where runs continued: of later moves and of replacements, by what named it.
    resumed: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, books: Books) -> _Facts:
        """Read them."""
        session_of = {one.id: one.session_id for one in books.instances if one.state in OPEN_INSTANCE}
        nodes: defaultdict[str, list[Node]] = defaultdict(list)
        every_node: defaultdict[str, list[Node]] = defaultdict(list)
        for node in books.nodes:
            every_node[node.session_id].append(node)
            if node.instance_id in session_of:
                nodes[session_of[node.instance_id]].append(node)
        sessions = {one.id: one for one in books.sessions}
        events: defaultdict[str, list[Event]] = defaultdict(list)
        states: defaultdict[str, list[Event]] = defaultdict(list)
        for event in sorted(books.events, key=lambda one: (one.at, one.id)):
            if event.kind == EventKind.MIGRATION_STEP:
                events[event.subject].append(event)
            elif event.subject in sessions and event.after in _STATES:
                states[event.subject].append(event)
        resumed = [(row.id, row.saved_from) for row in books.migrations]
        resumed += [(point.instance_id, point.path) for point in books.resume_points]
        by_request = {one.request_id: one for one in books.sessions}
        return cls(sessions, by_request, nodes, every_node, events, states, resumed)

    def ended_at(self, session: Session) -> datetime | None:
        """Return when the end of a session was ordered, or happened; None before that."""
        ends = (event.at for event in self.states.get(session.id, ()) if event.after in _ENDS)
        return next(ends, None)

    def state_at(self, session: Session, at: datetime) -> str:
        """Return the state of a session at a time."""
        before = [event.after or "" for event in self.states.get(session.id, ()) if event.at <= at]
        return before[-1] if before else ""


def _check(facts: _Facts, row: Migration) -> Iterator[Violation]:
    source, target = facts.sessions[row.source_session_id], facts.by_request.get(row.request_id)
    if (row.step in OVER) != (row.due_at is None):
        yield Violation("a migration is checked until it ended", row.id, f"it is {row.step}, due {row.due_at}")
    if not row.saved_from or row.saved_bytes <= 0:
        yield Violation("a run that moves has a verified copy", row.id, "no verified save is stored")
    # A source that comes back after a take-over is paused with the answer to its next check-in.
    paused = row.step in TARGET_MAY_RUN and row.taken_over_at is None
    if paused and any(_trains(node, row) for node in facts.nodes.get(source.id, ())):
        yield Violation("one trainer for a run", row.id, f"the source trains, and the target may since {row.step}")
    held = target is not None and row.started_at is None
    if held and target is not None and any(_started(node) for node in facts.nodes.get(target.id, ())):
        yield Violation("one trainer for a run", row.id, f"the target started at {row.step}")
    if row.step in (MigrationStep.DESTROYED, MigrationStep.DONE) and source.state not in ENDED_SESSION:
        yield Violation("the old machine is gone when a run has moved", row.id, f"its session is {source.state}")
    yield from _fewer_machines(facts, row, source, target)
    yield from _fewer_copies(facts, row, source, target)
    yield from _steps(facts.events.get(row.id, ()), row)


def _fewer_machines(facts: _Facts, row: Migration, source: Session, target: Session | None) -> Iterator[Violation]:
    """Check that each machine that a move ended left another one to the run, unless somebody meant the run to end."""
    name = "a move never leaves fewer machines"
    if target is None:
        return
    at = facts.ended_at(target)
    if target.end_code == EndReason.MIGRATION_FAILED and at is not None and source.end_code not in MEANT_ENDS:
        source_at = facts.ended_at(source)
        if source_at is not None and source_at <= at:
            yield Violation(name, row.id, f"the target was ended, and the source had ended: {source.end_code}")
        reports = [node.at for node in facts.every_node.get(source.id, ()) if node.at is not None]
        if facts.state_at(source, at) == SessionState.RUNNING and reports and at - max(reports) > SILENT:
            yield Violation(name, row.id, "the target was ended, and the source reported nothing any more")
    at = facts.ended_at(source)
    if row.step in _MOVED and source.end_code == EndReason.MIGRATED and at is not None:
        state = facts.state_at(target, at)
        if state != SessionState.RUNNING:
            yield Violation(name, row.id, f"the source was ended, and the target was {state}")


def _fewer_copies(facts: _Facts, row: Migration, source: Session, target: Session | None) -> Iterator[Violation]:
    """Check that the source ended only for a run that continued from its save, and that nothing continues from less."""
    name = "a move never leaves fewer verified copies"
    nodes = facts.every_node.get(target.id, ()) if target is not None else ()
    # A command that is started again may begin at an earlier step, with checkpoints of its own.
    reports = [node.report for node in nodes if node.report.get("job_attempt", 1) == 1]
    began_at = [report["lowest_step"] for report in reports if report.get("lowest_step") is not None]
    saved = row.saved_step or 0
    if row.step in _MOVED and source.end_code == EndReason.MIGRATED and began_at and min(began_at) < saved:
        yield Violation(name, row.id, f"the source was ended, and the target began at {min(began_at)}, below {saved}")
    if row.target_place is None or TargetPlace(row.target_place, row.step, saved, began_at).counts:
        return
    for subject, saved_from in facts.resumed:
        if subject != row.id and saved_from.startswith(f"{row.target_place}/"):
            yield Violation(name, row.id, f"{subject} continues from {saved_from}, where the run was never continued")


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
