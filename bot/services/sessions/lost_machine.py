"""Say, in the same words on every surface, that a session has lost its machine, and what follows."""

from __future__ import annotations

from ledger.kernel.states import ENDABLE_SESSION, InstanceState, RequestState, SessionState
from ledger.models import Instance, Request, Session
from ledger.queries.views import SessionView

_LAUNCHING = frozenset({SessionState.QUEUED, SessionState.PROVISIONING})
_LOST = frozenset({InstanceState.GONE, InstanceState.TERMINATING, InstanceState.TOMBSTONE})


def lost_machine(view: SessionView) -> str:
    """Say why a session that continues has no machine now, and what follows; "" where it has one or never had one."""
    session, row = view.session, view.instance
    if row is None or session.state not in _LAUNCHING:
        return ""
    # After a run, a replacement that was refused leaves it without a machine, too.
    refused_again = row.state is InstanceState.REJECTED and session.ran_s is not None
    if row.state not in _LOST and not refused_again:
        return ""
    return f"{row.outcome} {what_follows(view.request, session, row, row, row.cloud)}"


def what_follows(request: Request, session: Session, row: Instance, newest: Instance | None, cloud: str) -> str:
    """Say what follows the end of a machine, as far as it is known now; `cloud` names that of the newest machine."""
    if session.state not in ENDABLE_SESSION:
        return "It is not replaced."
    if session.dealt_commands:
        return "The machines that are left continue with the queue."
    if newest is not None and newest.id != row.id:
        return f"The next approved option, at {cloud}, replaces it."
    if request.state in (RequestState.QUOTING, RequestState.PENDING):
        return "New offers need an approval before anything is bought."
    return "The next approved option replaces it. If there is none, new offers need an approval."
