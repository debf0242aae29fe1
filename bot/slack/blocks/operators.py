"""What operators must know: an instance that should not exist, and anything that pages."""

from __future__ import annotations

from bot.rules.values.phrases import rate
from bot.slack.blocks.elements import Message, code, safe, section, when
from bot.slack.blocks.private_answer import mentioned
from ledger.kernel.states import OrphanState
from ledger.models import Orphan

_SAID = {
    OrphanState.SEEN: "was seen and is watched",
    OrphanState.QUARANTINED: "waits for an operator: adopt it or condemn it",
    OrphanState.CONDEMNED: "is being ended",
    OrphanState.GONE: "is confirmed gone",
}


def orphan_found(stray: Orphan) -> Message:
    """An instance of ours without a row of its own."""
    where = f"{safe(stray.cloud, 40)} instance {code(stray.ref, 80)} ({rate(stray.price_usd_h)})"
    why = f" {safe(stray.reason, 500)}" if stray.reason else ""
    text = f":ghost: {where} {_SAID[stray.state]}.{why} First seen {when(stray.first_seen_at)}."
    return Message(text, (section(text),))


def page(sentence: str) -> Message:
    """A page to the operators."""
    text = f":rotating_light: {mentioned(safe(sentence, 2_500))}"
    return Message(text, (section(text),))
