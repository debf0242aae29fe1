"""Build the warning before the agent's report ends a session: unresponsive, idle, or done with its job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from bot.rules.sessions.expiration import left
from bot.slack.blocks.elements import Message, button, person, safe, when
from bot.slack.blocks.session_ending import before_end, done_button, lost, stakes, stop_button
from bot.slack.blocks.session_ready_and_ended import what
from ledger.kernel.ids import short_id
from ledger.kernel.states import ENDABLE_SESSION
from ledger.queries.views import SessionView

SPARE: Final = "spare"


@dataclass(frozen=True, slots=True)
class IdleWarningFacts:
    """Facts of an idle warning: `end_s` is the end that it announces, `cap_usd` what is approved in all."""

    view: SessionView
    end_s: int
    cost_usd: Decimal
    cap_usd: Decimal


def idle_warning(shown: IdleWarningFacts, now: datetime) -> Message:
    """Build the warning, or the sentence about its outcome."""
    session, row = shown.view.session, shown.view.instance
    if session.state not in ENDABLE_SESSION:
        verb = "has ended" if session.ended_at is not None else "is ending"
        return Message.of(f"The *{what(session)}* {verb}; this message needs no action.")
    if session.early_end_at is None or int(session.early_end_at.timestamp()) != shown.end_s:
        stands = f" Its approved end is {when(session.deadline)}." if session.deadline else ""
        return Message.of(f":white_check_mark: The *{what(session)}* goes on.{stands}")
    at = f" at {safe(row.cloud, 40)}" if row else ""
    end = session.early_end_at
    lead = f":zzz: The *{what(session)}*{at} of {person(session.owner)} ends {when(end)} ({left(end, now)})."
    facts = stakes(session.early_end_reason or "", (shown.cost_usd, shown.cap_usd), lost(row))
    mark, short = f"{session.id}/{shown.end_s}", short_id(session.id)
    keep = button("Keep 1 h", f"{SPARE}:{short}", mark, style="primary", label=f"Keep session {short} for one hour")
    hint = "Keeping it moves nothing beyond its approved end and amount."
    return before_end(lead, facts, [keep, done_button(session, mark), stop_button(session, mark)], hint)
