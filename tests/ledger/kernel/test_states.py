"""The tables of the state machines, held against the design and against themselves."""

from __future__ import annotations

import pytest

from ledger.kernel.states import (
    ANNOUNCES,
    BILLABLE_INSTANCE,
    LEGAL,
    LIVE_SESSION,
    OPEN_INSTANCE,
    GrantState,
    InstanceState,
    NotificationKind,
    OrphanState,
    RequestState,
    SessionState,
    State,
    announced,
    is_terminal,
    reachable,
    sources,
)

MACHINES: tuple[type[State], ...] = (RequestState, GrantState, SessionState, InstanceState, OrphanState)
START: dict[type[State], State] = {
    RequestState: RequestState.QUOTING,
    GrantState: GrantState.OPEN,
    SessionState: SessionState.QUEUED,
    InstanceState: InstanceState.READY,
    OrphanState: OrphanState.SEEN,
}


@pytest.mark.parametrize("machine", MACHINES)
def test_every_state_has_a_row_and_leads_within_its_machine(machine: type[State]) -> None:
    assert set(LEGAL[machine]) == set(machine)
    for targets in LEGAL[machine].values():
        assert all(type(target) is machine for target in targets)
    assert set(ANNOUNCES[machine]) <= set(machine)


@pytest.mark.parametrize("machine", MACHINES)
def test_everything_is_reached_from_the_start_and_everything_can_end(machine: type[State]) -> None:
    start = START[machine]
    assert reachable(start) | {start} == set(machine)
    for state in machine:
        assert is_terminal(state) or any(is_terminal(after) for after in reachable(state))


@pytest.mark.parametrize("machine", MACHINES)
def test_no_state_leads_to_itself_directly(machine: type[State]) -> None:
    for state, targets in LEGAL[machine].items():
        assert state not in targets


def test_the_ends() -> None:
    assert {s for machine in MACHINES for s in machine if is_terminal(s)} == {
        RequestState.REJECTED,
        RequestState.CANCELLED,
        RequestState.EXPIRED,
        RequestState.UNAVAILABLE,
        GrantState.USED,
        GrantState.VOID,
        SessionState.TERMINATED,
        SessionState.FAILED,
        InstanceState.GONE,
        InstanceState.REJECTED,
        InstanceState.TOMBSTONE,
        OrphanState.GONE,
    }


def test_equal_words_of_two_machines_are_kept_apart() -> None:
    assert sources(SessionState.TERMINATING) != sources(InstanceState.TERMINATING)
    assert sources(InstanceState.GONE) == {InstanceState.LIVE, InstanceState.STOPPED, InstanceState.TERMINATING}
    assert reachable(OrphanState.GONE) == set()
    assert all(type(s) is SessionState for s in reachable(SessionState.STOPPED))
    assert all(type(s) is InstanceState for s in reachable(InstanceState.STOPPED))


def test_a_create_is_sent_once() -> None:
    assert sources(InstanceState.SENDING) == {InstanceState.READY}
    assert sources(InstanceState.READY) == set()


def test_terminating_ends_only_in_gone() -> None:
    assert reachable(InstanceState.TERMINATING) == {InstanceState.GONE}
    assert reachable(SessionState.TERMINATING) == {SessionState.TERMINATED}


def test_what_is_billed_is_open_and_what_is_open_is_not_terminal() -> None:
    assert BILLABLE_INSTANCE < OPEN_INSTANCE
    assert {s for s in InstanceState if not is_terminal(s)} == OPEN_INSTANCE
    assert {s for s in SessionState if not is_terminal(s)} == LIVE_SESSION


def test_who_ends_hears_of_it() -> None:
    for state in (SessionState.TERMINATED, SessionState.FAILED):
        assert NotificationKind.SESSION_ENDED in announced(state)
    assert announced(InstanceState.GONE) == ()
    assert announced(GrantState.VOID) == ()
