"""Say on a request's card which clouds are still being read, and which were not read to the end."""

from __future__ import annotations

from bot.rules.values.phrases import looking_at_rest
from bot.services.market.codec import completeness_of_quote
from bot.slack.blocks.elements import SENTENCE_MAX, safe
from ledger.models import Request
from ledger.queries.views import RequestView


def still_looking(request: Request) -> list[str]:
    """Return which clouds are still being read and what was found so far; nothing while no quote was held back."""
    looking = request.looking or {}
    if not looking.get("clouds"):
        return []
    lines = [f":hourglass_flowing_sand: {safe(looking_at_rest(looking['clouds']))}"]
    return [*lines, *filter(None, [safe(str(looking.get("so_far", "")), SENTENCE_MAX)])]


def not_read(view: RequestView) -> list[str]:
    """Return what is missing from the market behind a quote; nothing where all of it was read."""
    if view.quote is None or not view.quote.clouds:
        return []
    why = completeness_of_quote(view.quote).why
    return [f":warning: {safe(why, SENTENCE_MAX)}"] if why else []
