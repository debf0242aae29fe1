"""The journal's positions are 1, 2, 3, … and each belongs to one event."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from bot.services.audit.invariants import history
from ledger.kernel.event_kind import EventKind
from ledger.models import Event, EventOrder
from ledger.queries.audit import Books


def numbered(*positions: tuple[int, str]) -> Books:
    """A journal of four events, and these positions."""
    events = tuple(Event(id=f"evt_{number}", kind=EventKind.SSH_KEY_ADDED, subject="U1") for number in range(1, 5))
    order = tuple(EventOrder(position=position, event_id=event_id) for position, event_id in positions)
    tables: dict[str, Any] = {one.name: () for one in fields(Books)}
    return Books(**(tables | {"events": events, "order": order}))


def test_dense_positions_are_good_although_newer_events_have_none_yet() -> None:
    assert history.check(numbered()) == []
    assert history.check(numbered((1, "evt_2"), (2, "evt_1"), (3, "evt_3"))) == []


@pytest.mark.parametrize(
    ("positions", "found"),
    [
        ([(2, "evt_1"), (3, "evt_2")], ["evt_1", "evt_2"]),
        ([(1, "evt_1"), (3, "evt_2")], ["evt_2"]),
        ([(1, "evt_1"), (1, "evt_2")], ["evt_2"]),
        ([(1, "evt_1"), (2, "evt_nobody")], ["evt_nobody"]),
    ],
    ids=["no first", "a gap", "twice", "no event"],
)
def test_a_gap_a_repetition_or_a_position_without_its_event_is_found(
    positions: list[tuple[int, str]], found: list[str]
) -> None:
    violations = history.check(numbered(*positions))
    assert [(one.rule, one.subject) for one in violations] == [("positions are dense", event) for event in found]
