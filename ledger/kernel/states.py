"""Declare the state machines as data: which moves are legal, and which moves notify people."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Self


class RequestState(StrEnum):
    #: It looks at the market from time to time, buys nothing and holds nothing.
    WAITING = "waiting"
    QUOTING = "quoting"
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    UNAVAILABLE = "unavailable"


class GrantState(StrEnum):
    OPEN = "open"
    USED = "used"
    VOID = "void"


class SessionState(StrEnum):
    QUEUED = "queued"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    STOPPED = "stopped"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED = "failed"


class InstanceState(StrEnum):
    READY = "ready"
    SENDING = "sending"
    UNKNOWN = "unknown"
    LIVE = "live"
    STOPPED = "stopped"
    TERMINATING = "terminating"
    GONE = "gone"
    REJECTED = "rejected"
    TOMBSTONE = "tombstone"


class OrphanState(StrEnum):
    SEEN = "seen"
    QUARANTINED = "quarantined"
    CONDEMNED = "condemned"
    GONE = "gone"


class NotificationState(StrEnum):
    PENDING = "pending"
    SENT = "sent"
    DEAD = "dead"


class InboxState(StrEnum):
    NEW = "new"
    DONE = "done"
    FAILED = "failed"


State = RequestState | GrantState | SessionState | InstanceState | OrphanState

_R, _G, _S, _I, _T = RequestState, GrantState, SessionState, InstanceState, OrphanState

#: machine → from → the states it may become. Everything absent here is illegal. The tables are kept apart by machine
#: because equal words of two machines (a session and an instance are both *terminating*) are equal as text.
LEGAL: dict[type[State], dict[State, frozenset[State]]] = {
    RequestState: {
        _R.WAITING: frozenset({_R.QUOTING, _R.REJECTED, _R.CANCELLED, _R.EXPIRED}),
        # A request with a time until which it may wait returns to waiting when nothing fits after all.
        _R.QUOTING: frozenset({_R.PENDING, _R.UNAVAILABLE, _R.CANCELLED, _R.WAITING}),
        _R.PENDING: frozenset({_R.QUOTING, _R.APPROVED, _R.REJECTED, _R.CANCELLED, _R.EXPIRED}),
        # Until the create call is sent, a changed price or a sold offer makes the request ask again.
        _R.APPROVED: frozenset({_R.PENDING, _R.QUOTING}),
        _R.REJECTED: frozenset(),
        _R.CANCELLED: frozenset(),
        _R.EXPIRED: frozenset(),
        _R.UNAVAILABLE: frozenset(),
    },
    GrantState: {
        _G.OPEN: frozenset({_G.USED, _G.VOID}),
        _G.USED: frozenset(),
        _G.VOID: frozenset(),
    },
    SessionState: {
        _S.QUEUED: frozenset({_S.PROVISIONING, _S.TERMINATING, _S.TERMINATED, _S.FAILED}),
        _S.PROVISIONING: frozenset({_S.RUNNING, _S.QUEUED, _S.TERMINATING, _S.FAILED}),
        _S.RUNNING: frozenset({_S.STOPPED, _S.TERMINATING, _S.QUEUED}),
        _S.STOPPED: frozenset({_S.RUNNING, _S.TERMINATING}),
        _S.TERMINATING: frozenset({_S.TERMINATED}),
        _S.TERMINATED: frozenset(),
        _S.FAILED: frozenset(),
    },
    InstanceState: {
        _I.READY: frozenset({_I.SENDING, _I.REJECTED}),
        _I.SENDING: frozenset({_I.LIVE, _I.REJECTED, _I.UNKNOWN}),
        # A definite no of the cloud may come after the outcome was taken for unknown.
        _I.UNKNOWN: frozenset({_I.LIVE, _I.REJECTED, _I.TOMBSTONE}),
        _I.LIVE: frozenset({_I.STOPPED, _I.TERMINATING, _I.GONE}),
        _I.STOPPED: frozenset({_I.LIVE, _I.TERMINATING, _I.GONE}),
        _I.TERMINATING: frozenset({_I.GONE}),
        _I.GONE: frozenset(),
        _I.REJECTED: frozenset(),
        _I.TOMBSTONE: frozenset(),
    },
    OrphanState: {
        _T.SEEN: frozenset({_T.CONDEMNED, _T.QUARANTINED, _T.GONE}),
        _T.QUARANTINED: frozenset({_T.CONDEMNED, _T.GONE}),
        _T.CONDEMNED: frozenset({_T.GONE}),
        _T.GONE: frozenset(),
    },
}

#: An instance row in one of these may exist at the cloud; at most one such row per grant.
OPEN_INSTANCE = frozenset({_I.READY, _I.SENDING, _I.UNKNOWN, _I.LIVE, _I.STOPPED, _I.TERMINATING})
#: A machine in one of these may still become, or is, a part of its set. An unknown outcome counts until it is known.
PART_OF_SET = OPEN_INSTANCE - {_I.TERMINATING, _I.STOPPED}
#: Rows for which the cloud may be billing.
BILLABLE_INSTANCE = frozenset({_I.LIVE, _I.STOPPED, _I.TERMINATING})
#: A request in one of these has no outcome yet.
UNDECIDED = frozenset({_R.WAITING, _R.QUOTING, _R.PENDING})
LIVE_SESSION = frozenset({_S.QUEUED, _S.PROVISIONING, _S.RUNNING, _S.STOPPED, _S.TERMINATING})
#: Sessions in which there is something to end.
ENDABLE_SESSION = LIVE_SESSION - {_S.TERMINATING}
#: No cloud has a machine of it any more.
ENDED_SESSION = frozenset(SessionState) - LIVE_SESSION


#: A claim continues through a move into one of these: the create is called under it, and the scheduler watches a
#: session through all of these states. Every other move ends the claim.
CLAIM_GOES_ON: dict[type[State], frozenset[State]] = {
    SessionState: frozenset({_S.QUEUED, _S.PROVISIONING, _S.RUNNING, _S.STOPPED}),
    InstanceState: frozenset({_I.SENDING}),
}
#: No job looks again at a row in one of these.
NOTHING_DUE: dict[type[State], frozenset[State]] = {
    RequestState: frozenset({_R.APPROVED, _R.REJECTED, _R.CANCELLED, _R.EXPIRED, _R.UNAVAILABLE}),
    SessionState: frozenset({_S.TERMINATING, _S.TERMINATED, _S.FAILED}),
    InstanceState: frozenset({_I.GONE, _I.REJECTED, _I.TOMBSTONE}),
}


class NotificationKind(StrEnum):
    """Name what people receive. The value is the stable name in the database and in `docs/`; the label explains it.

    A termination waits, for a few seconds at most, until the delivery of one that `delays_termination` was attempted;
    of the replies these are only the ones that name who ordered it.
    """

    _value_: str
    label: str
    delays_termination: bool

    def __new__(cls, value: str, label: str = "", delays_termination: bool | None = None) -> Self:
        """Make one kind. Only type checkers need the defaults: they take `NotificationKind(text)` for this call."""
        if not label or delays_termination is None:
            raise TypeError(f"{value} needs a label, and whether a termination waits for it")
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.label, kind.delays_termination = label, delays_termination
        return kind

    REQUEST_MESSAGE = "request.message", "a request with its offers and buttons", False
    REQUEST_DETAILS = "request.details", "the details of a request's offers", False
    REQUEST_RESULT = "request.result", "the result of a request", False
    REQUEST_REMINDER = "request.reminder", "a request still waits for an approval", False
    SESSION_READY = "session.ready", "how to reach the instance of a session", False
    SESSION_ENDING = "session.ending", "a warning before the end of a session", True
    SESSION_FINAL_WARNING = "session.final_warning", "the final warning before the end of a session", False
    SESSION_IDLE = "session.idle", "an idle or unresponsive session is about to end", True
    SESSION_CHECKPOINT_HOLD = "session.checkpoint_hold", "a termination waits for a checkpoint", True
    SESSION_ENDED = "session.ended", "a session ended, and what it cost", False
    SESSION_TRANSFER = "session.transfer", "an offer to become the owner of a session", False
    BUDGET_THRESHOLD = "budget.threshold", "how much of a budget is used", False
    SESSION_INTERRUPTED = "session.interrupted", "an instance failed, was lost, or is terminated early", True
    ORPHAN_FOUND = "orphan.found", "an orphan was found", False
    OPERATOR_PAGE = "operator.page", "something needs an operator", False
    DIGEST = "digest", "the costs of a day or a week", False
    REPLY = "reply", "a private answer", True


class RollupTier(StrEnum):
    """Say how long a time one row of the rollup sums up."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


_N = NotificationKind

#: A move into this state makes these notifications due. The request's message is rendered again from state, so
#: announcing it twice costs an update and never a second message.
ANNOUNCES: dict[type[State], dict[State, tuple[NotificationKind, ...]]] = {
    RequestState: {
        _R.WAITING: (_N.REQUEST_MESSAGE,),
        _R.PENDING: (_N.REQUEST_MESSAGE,),
        _R.APPROVED: (_N.REQUEST_MESSAGE,),
        _R.REJECTED: (_N.REQUEST_MESSAGE, _N.REQUEST_RESULT),
        _R.CANCELLED: (_N.REQUEST_MESSAGE,),
        _R.EXPIRED: (_N.REQUEST_MESSAGE, _N.REQUEST_RESULT),
        _R.UNAVAILABLE: (_N.REQUEST_MESSAGE,),
    },
    GrantState: {},
    SessionState: {
        _S.QUEUED: (_N.REQUEST_MESSAGE,),
        _S.PROVISIONING: (_N.REQUEST_MESSAGE,),
        _S.RUNNING: (_N.REQUEST_MESSAGE, _N.REQUEST_RESULT, _N.SESSION_READY),
        _S.STOPPED: (_N.REQUEST_MESSAGE,),
        _S.TERMINATING: (_N.REQUEST_MESSAGE,),
        _S.TERMINATED: (_N.REQUEST_MESSAGE, _N.REQUEST_RESULT, _N.SESSION_ENDED),
        _S.FAILED: (_N.REQUEST_MESSAGE, _N.REQUEST_RESULT, _N.SESSION_ENDED),
    },
    InstanceState: {
        _I.SENDING: (_N.REQUEST_MESSAGE,),
        _I.LIVE: (_N.REQUEST_MESSAGE,),
        _I.UNKNOWN: (_N.REQUEST_MESSAGE,),
        _I.TOMBSTONE: (_N.REQUEST_MESSAGE, _N.REQUEST_RESULT),
    },
    OrphanState: {
        _T.CONDEMNED: (_N.ORPHAN_FOUND,),
        _T.QUARANTINED: (_N.ORPHAN_FOUND,),
    },
}


#: Messages that say how things are or will be: they are edited to what became of it, without buttons, when this is
#: reached. The first set is about the session of a row, the second about its request.
OUTDATED: dict[State, tuple[frozenset[NotificationKind], frozenset[NotificationKind]]] = {
    **dict.fromkeys(
        (_S.TERMINATED, _S.FAILED),
        (
            frozenset(
                {
                    _N.SESSION_READY,
                    _N.SESSION_ENDING,
                    _N.SESSION_FINAL_WARNING,
                    _N.SESSION_IDLE,
                    _N.SESSION_CHECKPOINT_HOLD,
                    _N.SESSION_INTERRUPTED,
                }
            ),
            frozenset({_N.REQUEST_RESULT}),
        ),
    ),
    **dict.fromkeys(
        (_R.APPROVED, _R.REJECTED, _R.CANCELLED, _R.EXPIRED),
        (frozenset[NotificationKind](), frozenset({_N.REQUEST_REMINDER, _N.REQUEST_RESULT})),
    ),
}


def sources(to: State) -> frozenset[State]:
    """Return the states from which `to` may be entered."""
    return frozenset(state for state, targets in LEGAL[type(to)].items() if to in targets)


def is_terminal(state: State) -> bool:
    """Whether nothing may leave `state`."""
    return not LEGAL[type(state)][state]


def claim_goes_on(to: State) -> bool:
    """Whether the work under a claim continues after a move into `to`."""
    return to in CLAIM_GOES_ON.get(type(to), ())


def nothing_due(to: State) -> bool:
    """Whether no job looks again at a row that moved into `to`."""
    return to in NOTHING_DUE.get(type(to), ())


def announced(to: State) -> tuple[NotificationKind, ...]:
    """Return the notifications that people receive about a move into `to`."""
    return ANNOUNCES[type(to)].get(to, ())


@lru_cache(maxsize=None, typed=True)
def reachable(start: State) -> frozenset[State]:
    """Return every state that can follow `start`, in any number of legal moves."""
    seen: set[State] = set()
    frontier = [start]
    while frontier:
        state = frontier.pop()
        for following in LEGAL[type(state)][state]:
            if following not in seen:
                seen.add(following)
                frontier.append(following)
    return frozenset(seen)
