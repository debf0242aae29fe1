"""Build the message about a failed instance: what is wrong, what happens to it, and what comes next."""

from __future__ import annotations

from datetime import datetime

from bot.rules.instances.health import trouble
from bot.rules.values.phrases import rate
from bot.services.sessions.lost_machine import what_follows
from bot.slack.blocks.elements import SENTENCE_MAX, Message, person, safe, when
from bot.slack.blocks.session.session_ready_and_ended import is_over, what
from ledger.kernel.states import InstanceState, OrphanState
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
            until = f" If it is not back by {when(given_up)}, it ends." if given_up else ""
            text = f":warning: {lead} does not work now. {safe(found.sentence, SENTENCE_MAX)}{until}"
    else:
        cloud = safe(newest.cloud, 40) if newest is not None else ""
        after = what_follows(request, session, row, newest, cloud)
        how = "is ending" if row.state is InstanceState.TERMINATING else "has ended"
        text = f":warning: {lead} {how}. {safe(row.outcome, SENTENCE_MAX)} {after}"
    return Message.of(text.strip())


_ENDED = {
    OrphanState.SEEN: "It will be terminated within minutes",
    OrphanState.CONDEMNED: "It is being terminated",
    OrphanState.GONE: "It is gone",
}


def found(session: Session, row: Instance, orphan: Orphan, *, own: bool) -> Message:
    """Describe an orphan with the label of this row, which the row does not hold or holds as lost."""
    whose = f"your *{what(session)}*" if own else f"the *{what(session)}*"
    lead = f"at {safe(row.cloud, 40)} ({rate(orphan.price_usd_h)})"
    if orphan.state is OrphanState.QUARANTINED:
        text = (
            f":warning: {whose[0].upper()}{whose[1:]} {lead} counted as lost, but its cloud lists it again, and it "
            "costs money. Save what you need. It ends at its approved end, or when an operator ends it."
        )
    else:
        why = safe(orphan.reason, SENTENCE_MAX)
        text = f":ghost: A second instance {lead} has the label of {whose}. {why} {_ENDED[orphan.state]}."
    return Message.of(text)
