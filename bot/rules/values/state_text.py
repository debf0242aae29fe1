"""Name the states of requests, sessions, instances, orphans and deliveries for people, the same in every list."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from ledger.kernel.states import (
    GrantState,
    InstanceState,
    NotificationState,
    OrphanState,
    RequestState,
    SessionState,
)

#: By machine, since equal words of two machines are equal as text.
_WORDS: Final[Mapping[type[StrEnum], Mapping[StrEnum, str]]] = MappingProxyType(
    {
        RequestState: {
            RequestState.WAITING: "waiting for an offer",
            RequestState.QUOTING: "getting offers",
            RequestState.PENDING: "waiting for approval",
            RequestState.APPROVED: "approved",
            RequestState.REJECTED: "rejected",
            RequestState.CANCELLED: "cancelled",
            RequestState.EXPIRED: "expired",
            RequestState.UNAVAILABLE: "without an offer",
        },
        GrantState: {
            GrantState.OPEN: "not used yet",
            GrantState.USED: "used",
            GrantState.VOID: "withdrawn",
        },
        SessionState: {
            SessionState.QUEUED: "launching soon",
            SessionState.PROVISIONING: "launching",
            SessionState.RUNNING: "running",
            SessionState.STOPPED: "stopped",
            SessionState.TERMINATING: "ending",
            SessionState.TERMINATED: "ended",
            SessionState.FAILED: "failed",
        },
        InstanceState: {
            InstanceState.READY: "launching soon",
            InstanceState.SENDING: "launching",
            InstanceState.UNKNOWN: "unknown outcome",
            InstanceState.LIVE: "running",
            InstanceState.STOPPED: "stopped",
            InstanceState.TERMINATING: "terminating",
            InstanceState.GONE: "gone",
            InstanceState.REJECTED: "refused",
            InstanceState.TOMBSTONE: "never created",
        },
        OrphanState: {
            OrphanState.SEEN: "found",
            OrphanState.QUARANTINED: "quarantined",
            OrphanState.CONDEMNED: "terminating",
            OrphanState.GONE: "gone",
        },
        NotificationState: {
            NotificationState.PENDING: "waiting",
            NotificationState.SENT: "delivered",
            NotificationState.DEAD: "failed",
        },
    }
)

#: The words for the state of a session that has lost its machine and continues.
LOST_MACHINE = "waiting for a new machine"


def state_words(state: StrEnum) -> str:
    """Return the words for a state, as in `The session is ending`."""
    return _WORDS[type(state)][state]


def words_of(machine: type[StrEnum], state: str) -> str:
    """Return the words for a state as a row or an answer holds it; an unknown one stays as it is."""
    try:
        return state_words(machine(state))
    except ValueError:
        return state
