"""List what a request asks for."""

from __future__ import annotations

from ledger.kernel.vocabulary import Vocabulary


class RequestKind(Vocabulary):
    """Say what somebody, or the service, asks an approver for."""

    PROVISION = "provision", "Ask for GPUs"
    EXTEND = "extend", "More time"
    OVERRIDE_12H = "override_12h", "More than the usual time"
    OVERSPEND = "overspend", "Costs more than approved"
    MIGRATE = "migrate", "Move a run to another machine"
    VOLUME = "volume", "Ask for a network volume"


#: Requests for a machine of their own.
MACHINE = frozenset({RequestKind.PROVISION, RequestKind.MIGRATE})
#: Requests for something that is rented, with offers to choose from.
RENTS = MACHINE | {RequestKind.VOLUME}
#: Requests about a session that exists already: their parent is the request of that session.
ABOUT_SESSION = frozenset({RequestKind.EXTEND, RequestKind.OVERSPEND})
