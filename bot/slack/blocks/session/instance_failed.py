"""Build the message about a failed instance: what is wrong, what happens to it, and what comes next."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from bot.rules.instances.account_text import paused
from bot.rules.instances.health import trouble
from bot.rules.values.phrases import rate
from bot.services.sessions import session_state
from bot.services.sessions.lost_machine import what_follows
from bot.slack.blocks.elements import (
    SENTENCE_MAX,
    Message,
    actions,
    button,
    confirm,
    person,
    safe,
    section,
    when,
)
from bot.slack.blocks.session.session_ready_and_ended import is_over, what
from ledger.kernel.states import InstanceState, OrphanState
from ledger.kernel.steps.grace import AtRisk, Cause, GraceChoice
from ledger.models import GraceRow, Instance, Orphan, Request, Session

#: The verbs of the buttons about a machine in grace.
GRACE_CHOICES: Final = {
    "grace_wait": GraceChoice.WAIT,
    "grace_replace": GraceChoice.REPLACE,
    "grace_give_up": GraceChoice.GIVE_UP,
}


def interrupted(
    request: Request,
    session: Session,
    row: Instance,
    newest: Instance | None,
    given_up: datetime | None,
    *,
    own: bool,
    grace: GraceRow | None = None,
    now: datetime | None = None,
) -> Message:
    """Describe one failed instance. `newest` is the session's last one, `own` says that its owner reads it.

    `given_up` is when it is terminated unless it works again by then. The message about one in grace says what that
    costs, and has the buttons for a decision.
    """
    whose = f"Your *{what(session)}*" if own else f"{person(request.requester)} the *{what(session)}*"
    lead = f"{whose} at {safe(row.cloud, 40)}"
    if is_over(session):
        return Message.of(f":warning: {lead} failed: {safe(row.outcome, SENTENCE_MAX)} The session has ended.")
    if grace is not None and row.state in (InstanceState.LIVE, InstanceState.STOPPED):
        return _in_grace(session, row, grace, lead, now or grace.since)
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


def _in_grace(session: Session, row: Instance, grace: GraceRow, lead: str, now: datetime) -> Message:
    """Describe a machine that is kept: why, what that costs and until when, and what somebody can do."""
    spot = bool(row.offer.get("spot"))
    found = trouble(row.status, spot=spot, other=row.other_gpus) if row.status else None
    why = found.sentence if found is not None else SILENT_SENTENCE
    if row.state is InstanceState.STOPPED and not grace.replaced:
        why = "GPU Shopper stopped it beside its replacement, which has ended."
    elif grace.cause is Cause.ACCOUNT:
        why = paused(row.cloud, grace.account_code)
    elif grace.account_code and grace.cause is Cause.MARKET:
        why = "Its account can be used again, but its GPU is taken."
    risk = "" if grace.at_risk is AtRisk.NOTHING else f"What would be lost: {grace.at_risk.label}."
    costs = session_state.grace_line(grace, now, when(grace.until))
    text = f":warning: {lead} does not work now. {safe(why, SENTENCE_MAX)} {costs} {risk}"
    value = f"{session.id}/{int(grace.since.timestamp())}"
    may_wait = grace.choice is None and not grace.replaced
    replaces = not grace.replaced and session.nodes == 1 and session.replacements_left > 0
    short = session.short_id
    question = confirm("Give up", GIVE_UP, "Give up", is_danger=True)
    buttons = [
        button("Wait", f"grace_wait:{short}", value, label=f"Wait for session {short}") if may_wait else None,
        button("Replace, keep the disk", f"grace_replace:{short}", value, label=f"Replace the machine of {short}")
        if replaces
        else None,
        button("Give up", f"grace_give_up:{short}", value, label=f"Give up session {short}", confirm=question),
    ]
    chosen = f"{person(grace.chosen_by)} chose: {_CHOSEN[grace.choice]}." if grace.choice and grace.chosen_by else ""
    body = " ".join(filter(None, (text.strip(), chosen)))
    return Message(body, (section(body), actions(*filter(None, buttons))))


GIVE_UP: Final = "The machine ends, and everything on it is deleted. Without a replacement the session ends, too."
SILENT_SENTENCE: Final = "Its agent stopped reporting, and its SSH port doesn't answer."
_CHOSEN: Final = {
    GraceChoice.WAIT: "wait",
    GraceChoice.REPLACE: "replace it, and keep the disk",
    GraceChoice.GIVE_UP: "give it up",
}
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
