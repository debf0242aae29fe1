"""Name the state of a session for people, the same in lists, status and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ledger.kernel.states import SessionState

_WORDS: Final[Mapping[SessionState, str]] = MappingProxyType(
    {
        SessionState.QUEUED: "launching soon",
        SessionState.PROVISIONING: "launching",
        SessionState.RUNNING: "running",
        SessionState.STOPPED: "stopped",
        SessionState.TERMINATING: "ending",
        SessionState.TERMINATED: "ended",
        SessionState.FAILED: "failed",
    }
)


def state_words(state: SessionState) -> str:
    """Return the words for a state, as in `The session is ending`."""
    return _WORDS[state]
