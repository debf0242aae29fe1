"""Build the private message that offers a session to its next owner, and what became of the offer."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from bot.rules.values.phrases import usd
from bot.slack.blocks.elements import Message, actions, button, code, confirm, person, safe, section, when
from bot.slack.blocks.session.session_ready_and_ended import is_over, what
from ledger.kernel.people.transfer_state import TransferState
from ledger.models import Transfer
from ledger.queries.views import SessionView

ACCEPT: Final = "accept"
DECLINE: Final = "decline"
_OUTCOMES: Final = {
    TransferState.ACCEPTED: "is yours now",
    TransferState.DECLINED: "stays with its owner: you declined it",
    TransferState.WITHDRAWN: "is no longer offered to you",
    TransferState.EXPIRED: "stays with its owner: the offer expired",
    TransferState.OVERTAKEN: "ended before you answered",
}


def transfer_message(found: Transfer, view: SessionView, left_usd: Decimal, command: str) -> Message:
    """Build the offer with its buttons, or the sentence about its outcome. `left_usd`: what may still be spent."""
    name, short = f"*{what(view.session)}*", view.session.short_id
    # The job closes the offers of a session that has ended; until then the message says so itself.
    overtaken = found.state is TransferState.OFFERED and is_over(view.session)
    if found.state is not TransferState.OFFERED or overtaken:
        outcome = _OUTCOMES[TransferState.OVERTAKEN if overtaken else found.state]
        return Message.of(f"The {name} of {person(found.from_owner)} ({short}) {outcome}.")
    cloud = safe(view.instance.cloud, 40) if view.instance else "its cloud"
    end = f"It ends {when(view.session.deadline)}. " if view.session.deadline else ""
    text = (
        f":key: {person(found.offered_by)} offers you the {name} of {person(found.from_owner)} at {cloud}. "
        f"{end}If you accept, it is yours: its costs from then on (at most {usd(left_usd)}), its warnings and its "
        f"buttons. The offer expires {when(found.expires_at)}."
    )
    asked = confirm("Become the owner?", f"Its costs from now on are yours, at most {usd(left_usd)}.", "Accept")
    mark = f"{view.session.id}/{found.id}"
    accept = button(
        "Accept", f"{ACCEPT}:{short}", mark, style="primary", label=f"Accept session {short}", confirm=asked
    )
    decline = button("Decline", f"{DECLINE}:{short}", mark, label=f"Decline session {short}")
    hint = f"Or type {code(f'{command} transfer {short} accept')}. To see more: {code(f'{command} status {short}')}."
    return Message(text, (section(text), actions(accept, decline), section(hint)))
