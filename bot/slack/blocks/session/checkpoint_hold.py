"""Build the message about a termination that waits for its checkpoint: why, until when, its cost, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from bot.rules.sessions.expiration import left
from bot.services.checkpoints.hold import ASKED, DISK
from bot.slack.blocks.elements import SENTENCE_MAX, Message, button, code, confirm, person, safe, when
from bot.slack.blocks.session.session_ending import before_end, lost, stakes
from bot.slack.blocks.session.session_ready_and_ended import EXTEND, is_over, warning_after_end, what
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.models import Instance
from ledger.queries.views import SessionView

SAVED: Final = "held_saved"
LET_GO: Final = "held_let_go"


@dataclass(frozen=True, slots=True)
class CheckpointHoldFacts:
    """Facts of a checkpoint-hold message: `row` is the machine, `step` the checkpoint step when it was sent.

    `cap_usd` is what is approved in all, `waiting` whether a request for more time is undecided.
    """

    view: SessionView
    row: Instance
    step: str
    cost_usd: Decimal
    cap_usd: Decimal
    waiting: bool


def checkpoint_hold_message(shown: CheckpointHoldFacts, command: str, now: datetime) -> Message:
    """Build the message, or the sentence about its outcome."""
    session, row = shown.view.session, shown.row
    if is_over(session):
        return warning_after_end(session)
    name, note = f"*{what(session)}*", safe(row.gate_note or "", SENTENCE_MAX)
    if shown.step == CheckpointStep.DESTROYED:
        return Message.of(f":warning: The {name} of {person(session.owner)} at {safe(row.cloud, 40)} is ending. {note}")
    still_waiting = {
        CheckpointStep.SAVING: {CheckpointStep.SAVING},
        CheckpointStep.HELD: {CheckpointStep.STOPPING, CheckpointStep.HELD},
        ASKED: {CheckpointStep.STOPPING, CheckpointStep.HELD},
        DISK: {CheckpointStep.HELD},
    }.get(shown.step, set())
    if row.checkpoint_step not in still_waiting or row.checkpoint_until is None:
        return Message.of(f"The {name}: {note}")
    until, short = row.checkpoint_until, session.short_id
    lead = (
        f":floppy_disk: The {name} of {person(session.owner)} at {safe(row.cloud, 40)} has no verified checkpoint, so "
        f"it is not terminated yet. Without an answer it ends {when(until)} ({left(until, now)})."
    )
    if session.preserve and shown.step != CheckpointStep.SAVING:
        at = f"{person(session.owner)} at {safe(row.cloud, 40)}"
        lead = f":floppy_disk: The disk of the {name} of {at} will be deleted {when(until)} ({left(until, now)})."
    if shown.step == CheckpointStep.SAVING:
        at = f"{person(session.owner)} at {safe(row.cloud, 40)}"
        lead = f":floppy_disk: The {name} of {at} saves a checkpoint before it ends."
    facts = stakes(row.gate_note or "", (shown.cost_usd, shown.cap_usd), lost(row), waiting=shown.waiting)
    mark = f"{session.id}/{int(until.timestamp())}"
    gone = f"{what(session)} ends and its disk is deleted."
    buttons = [
        button("I saved it", f"{SAVED}:{short}", mark, style="primary", label=f"The data of session {short} is saved",
               confirm=confirm("Is everything saved?", gone, "I saved it")),
        button("Ask for an extension…", f"{EXTEND}:{short}", mark, label=f"Ask for more time for session {short}"),
        button("End anyway", f"{LET_GO}:{short}", mark, style="danger", label=f"End session {short} and its disk",
               confirm=confirm("End anyway?", f"{gone} No checkpoint of it is verified.", "End anyway")),
    ]  # fmt: skip
    hint = f"Or type {code(f'{command} extend {short} 2h')} or {code(f'{command} terminate {short}')}."
    return before_end(lead, facts, buttons, hint)
