"""Build the messages for operators: an orphan was found, or something pages them."""

from __future__ import annotations

from bot.rules.values.phrases import rate
from bot.slack.blocks.elements import Message, code, safe, when
from bot.slack.blocks.private_answer import mentioned
from ledger.kernel.states import OrphanState
from ledger.models import Orphan

_SAID = {
    OrphanState.SEEN: "has no session. It is terminated if it stays",
    OrphanState.QUARANTINED: "is quarantined: adopt it or condemn it",
    OrphanState.CONDEMNED: "is being terminated",
    OrphanState.GONE: "is gone",
}


def orphan_found(orphan: Orphan) -> Message:
    """Describe an orphan."""
    where = f"{safe(orphan.cloud, 40)} instance {code(orphan.ref, 80)} ({rate(orphan.price_usd_h)})"
    why = f" {safe(orphan.reason, 500)}" if orphan.reason else ""
    text = f":ghost: {where} {_SAID[orphan.state]}.{why} First seen {when(orphan.first_seen_at)}."
    return Message.of(text)


def page(sentence: str) -> Message:
    """Build a page to the operators."""
    text = f":rotating_light: {mentioned(safe(sentence, 2_500))}"
    return Message.of(text)
