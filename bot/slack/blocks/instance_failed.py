"""Build the message about a failed instance: what is wrong, what happens to it, and what comes next."""

from __future__ import annotations

from datetime import datetime

from bot.rules.instances.health import trouble
from bot.rules.values.phrases import rate
from bot.slack.blocks.elements import SENTENCE_MAX, Message, person, safe, when
from bot.slack.blocks.session_ready_and_ended import is_over, what
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from ledger.models import Instance, Orphan, Request, Session


def interrupted(
    request: Request, session: Session, row: Instance, newest: Instance | None, given_up: datetime | None, *, own: bool
) -> Message:
    """Describe one failed instance. `newest` is the session's last one, `own` says that its owner reads it.

    `given_up` is when it is terminated unless it works again by then.
    """
    whose = f"Your *{what(session)}*" if own else f"{person(request.requester)} the *{what(session)}*"
    lead = f"{whose} at {safe(row.cloud, 40)}"
    if is_over(session):
        return Message.of(f":warning: {lead} failed: {safe(row.outcome, SENTENCE_MAX)} The session has ended.")
    if row.state in (InstanceState.LIVE, InstanceState.STOPPED):
        spot, other = bool(row.offer.get("spot")), row.other_gpus
        found = trouble(row.status, spot=spot, other=other) if row.trouble_at and row.status else None
        if found is None:
            text = f":white_check_mark: {lead} works again, as reported by the cloud."
        else:
            until = f" It is ended {when(given_up)} unless it is back by then." if given_up else ""
            text = f":warning: {lead} does not work now. {safe(found.sentence, SENTENCE_MAX)}{until}"
    else:
        how = "is being ended" if row.state is InstanceState.TERMINATING else "is gone"
        text = f":warning: {lead} {how}. {safe(row.outcome, SENTENCE_MAX)} {_next(request, session, row, newest)}"
    return Message.of(text.strip())


_ENDED = {
    OrphanState.SEEN: "It is ended when it is seen again",
    OrphanState.CONDEMNED: "It is being ended",
    OrphanState.GONE: "It is gone",
}


def found(session: Session, row: Instance, orphan: Orphan, *, own: bool) -> Message:
    """Describe an orphan with the label of this row, which the row does not hold or holds as lost."""
    whose = f"your *{what(session)}*" if own else f"the *{what(session)}*"
    lead = f"at {safe(row.cloud, 40)} ({rate(orphan.price_usd_h)})"
    if orphan.state is OrphanState.QUARANTINED:
        text = (
            f":warning: {whose[0].upper()}{whose[1:]} {lead} that had been taken for lost is listed again and costs. "
            "Save what you need from it; an operator ends it, or its approved end does."
        )
    else:
        why = safe(orphan.reason, SENTENCE_MAX)
        text = f":ghost: One more machine {lead} carries the label of {whose}. {why} {_ENDED[orphan.state]}."
    return Message.of(text)


def _next(request: Request, session: Session, row: Instance, newest: Instance | None) -> str:
    """Say what follows, as far as it is known now."""
    if session.state in (SessionState.TERMINATING, SessionState.TERMINATED, SessionState.FAILED):
        return "Nothing else is bought for it."
    if newest is not None and newest.id != row.id:
        return f"The next option of the same approval, at {safe(newest.cloud, 40)}, takes its place."
    if request.state in (RequestState.QUOTING, RequestState.PENDING):
        return "It is asked again: nothing is bought before somebody approves new offers."
    return "Then the next option of the approval is tried, or it is asked again."
