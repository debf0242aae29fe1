"""Refuse decisions on a request that has no offers yet, with the same sentence in every client."""

from __future__ import annotations

from collections.abc import Collection

from bot.rules.values.phrases import Verdict, deny, looking_at_rest
from bot.rules.values.reply_code import ReplyCode

STILL_QUOTING = deny(ReplyCode.QUOTING, "This request has no offers yet. Try again when they are shown.")


def still_quoting(looking_at: Collection[str]) -> Verdict:
    """Refuse a decision on a request without offers, or on one whose clouds are still being read."""
    if not looking_at:
        return STILL_QUOTING
    return deny(ReplyCode.QUOTING, f"{looking_at_rest(looking_at)} Try again when that is done.")
