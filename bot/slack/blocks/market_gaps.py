"""Say on a request's card which clouds are still being read, and which were not read to the end."""

from __future__ import annotations

from datetime import datetime

from bot.rules.values.phrases import looking_at_rest
from bot.services.market.codec import completeness_of_quote
from bot.slack.blocks.elements import SENTENCE_MAX, safe, when
from ledger.models import Request
from ledger.queries.views import RequestView
from providers.cloud_names import cloud_title


def still_looking(request: Request) -> list[str]:
    """Return which clouds are still being read and what was found so far; nothing while no quote was held back."""
    looking = request.looking or {}
    if not looking.get("clouds"):
        return []
    lines = [f":hourglass_flowing_sand: {safe(looking_at_rest(looking['clouds']))}"]
    return [*lines, *filter(None, [safe(str(looking.get("so_far", "")), SENTENCE_MAX)])]


def not_read(view: RequestView) -> list[str]:
    """Return what is missing from the market behind a quote, and the clouds that nothing can be bought from.

    Nothing where all of it was read and can be bought.
    """
    if view.quote is None or not view.quote.clouds:
        return []
    refused = [str(one.get("sentence", "")) for one in view.quote.clouds if one.get("refused")]
    said = " ".join(filter(None, [completeness_of_quote(view.quote).why, *refused]))
    return [f":warning: {safe(said, SENTENCE_MAX)}"] if said else []


def copied(view: RequestView) -> str:
    """Say when the rest of each cloud's offers was read, where it comes from a copy of its market; else nothing."""
    clouds = view.quote.clouds if view.quote is not None else []
    times = [(str(one["cloud"]), str(one["copied_at"])) for one in clouds if one.get("copied_at")]
    said = (f"{safe(cloud_title(cloud), 40)} {when(datetime.fromisoformat(at))}" for cloud, at in times)
    return f"*Offers beyond the first page are from*: {', '.join(said)}" if times else ""
