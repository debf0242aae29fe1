"""Check that every state change is legal, has its journal row, and has the notifications that its table names.

The journal itself must be numbered without gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.services.audit.invariants.world import Violation
from ledger.core import MOVED
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import (
    LEGAL,
    UNDECIDED,
    GrantState,
    InstanceState,
    NotificationKind,
    OrphanState,
    RequestState,
    SessionState,
    State,
    announced,
)
from ledger.models import Event, Request
from ledger.queries.audit import Books


@dataclass(frozen=True, slots=True)
class _Machine:
    table: str
    states: type[Any]
    initial: frozenset[Any]


#: An orphan may begin in every state: its first sighting decides.
_MACHINES = (
    _Machine("requests", RequestState, UNDECIDED),
    _Machine("grants", GrantState, frozenset({GrantState.OPEN})),
    _Machine("advances", GrantState, frozenset({GrantState.OPEN})),
    _Machine("sessions", SessionState, frozenset({SessionState.QUEUED})),
    _Machine("instances", InstanceState, frozenset({InstanceState.READY})),
    _Machine("orphans", OrphanState, frozenset(OrphanState)),
)


def check(books: Books) -> list[Violation]:
    """Check the journal and the announcements of every state machine."""
    by_subject: dict[str, list[Event]] = {}
    for event in books.events:
        if event.kind.endswith(".moved"):
            by_subject.setdefault(event.subject, []).append(event)
    found: list[Violation] = []
    for machine in _MACHINES:
        for row in getattr(books, machine.table):
            found += _walked(machine, row, by_subject.get(row.id, []))
    return [*found, *_announced(books), *_numbered(books)]


def _numbered(books: Books) -> Iterator[Violation]:
    """Check that the positions of the journal are 1, 2, 3, … without gaps, and that each belongs to an event.

    A reader by position that found a gap could not know whether an event is still to come there.
    """
    there = {event.id for event in books.events}
    for expected, row in enumerate(books.order, start=1):
        if row.position != expected or row.event_id not in there:
            yield Violation("positions are dense", row.event_id, f"it has position {row.position}, not {expected}")


def _walked(machine: _Machine, row: Any, events: Iterable[Event]) -> Iterator[Violation]:
    """Check that the journal's moves are one legal walk from an initial state to the row's state.

    Rows of one millisecond have no order among themselves, so the walk is checked by counting. Every state is left as
    often as it is entered, except that the first is left once more and the last entered once more.
    """
    balance: Counter[State] = Counter()
    for event in events:
        before, after = machine.states(event.before), machine.states(event.after)
        if after not in LEGAL[machine.states][before]:
            yield Violation("terminal is terminal", row.id, f"the journal has {before} to {after}")
        balance[before] -= 1
        balance[after] += 1
    balance[row.state] -= 1
    starts = [state for state, count in balance.items() if count != 0]
    # The only difference must be one initial state that was left once more than it was entered.
    if not (
        (len(starts) == 1 and balance[starts[0]] == -1 and starts[0] in machine.initial)
        or (not starts and row.state in machine.initial)
    ):
        yield Violation("every move has its event", row.id, f"it is {row.state}, and the journal ends elsewhere")


def _announced(books: Books) -> Iterator[Violation]:
    there = {(note.kind, note.subject) for note in books.notifications}
    requests = {row.id: row for row in books.requests}
    owners = {row.id: row.request_id for row in books.sessions} | {row.id: row.request_id for row in books.instances}
    moved = [one for one in books.events if one.kind == EventKind.SESSION_TRANSFERRED]
    for event in books.events:
        state = _state(event)
        if state is None:
            continue  # Not a move.
        request_id = owners.get(event.subject, event.subject)
        request = requests.get(request_id)
        for kind in announced(state):
            if request is not None and not _is_said(request, kind, state, _requester(event, request, owners, moved)):
                continue
            if request is not None and request.kind is RequestKind.OVERRIDE_12H and request.parent_id:
                request_id = request.parent_id
            card_of = requests[request_id].card_of if request_id in requests else None
            subject = _subject(kind, event.subject, request_id, state, card_of)
            if (kind, subject) not in there:
                text = f"it became {state}, and nobody was to hear of it ({kind})"
                yield Violation("every move has its outbox row", event.subject, text)


def _requester(event: Event, request: Request, owners: Mapping[str, str], moved: Sequence[Event]) -> str:
    """Return whose a request was at an event: a transfer after that made it somebody else's."""
    later = [one for one in moved if owners.get(one.subject) == request.id and one.at >= event.at]
    return str(min(later, key=lambda one: one.at).data["from"]) if later else request.requester


def _is_said(request: Request, kind: NotificationKind, state: State, requester: str) -> bool:
    """Whether a move has this notification: an override has only the card of its request, and a fact one message."""
    in_slack = Actor.from_ref(requester).kind is ActorKind.SLACK
    if kind is NotificationKind.REQUEST_RESULT and isinstance(state, SessionState):
        return not in_slack
    return kind is NotificationKind.REQUEST_MESSAGE or request.kind is not RequestKind.OVERRIDE_12H


def _state(event: Event) -> State | None:
    for machine in _MACHINES:
        if event.kind == MOVED[machine.states]:
            state: State = machine.states(event.after)
            return state
    return None


def _subject(kind: NotificationKind, row_id: str, request_id: str, state: State, card_of: str | None) -> str:
    if kind is NotificationKind.REQUEST_RESULT:
        return f"{request_id}/{state}"
    if kind is NotificationKind.REQUEST_MESSAGE:
        return card_of or request_id
    return row_id
