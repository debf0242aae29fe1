"""Delay a quote while offers are still being read, so that nobody approves from a part of the market."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.job_text import machine
from bot.rules.market.ranking import Ranked
from bot.rules.values.phrases import usd
from bot.services.market.catalog import MarketAnswer
from bot.services.notifications.request_message import show_again
from bot.services.runtime.context import Context
from ledger.core import Claim, release
from ledger.models import Request
from providers.cloud_names import cloud_title

#: The pause between two checks whether all offers were read.
LOOK_S: Final = 2.0
#: After this time the quote is made of the offers that were read. Its card says what is missing.
LONGEST: Final = timedelta(minutes=5)


def since(request: Request) -> datetime | None:
    """Return since when the clouds are being read for a request; None where its quote was not delayed."""
    looking = request.looking
    return datetime.fromisoformat(looking["since"]) if looking else None


def is_needed(request: Request, job: JobRequest, market: MarketAnswer, now: datetime) -> bool:
    """Whether the quote waits for more offers. A request for one offer waits for that offer only."""
    began = since(request)
    found = job.offer_id is not None and any(offer.id == job.offer_id for offer in market.offers)
    return bool(market.reading) and not found and (began is None or now - began < LONGEST)


async def look_on(
    ctx: Context, request: Request, held: Claim, market: MarketAnswer, ranked: Ranked, asked_at: datetime
) -> None:
    """Release the request until the next check. Its card says which clouds are still being read."""
    began = since(request) or asked_at
    looking: dict[str, Any] = {"clouds": [*market.reading], "since": began.isoformat(), "so_far": _so_far(ranked)}
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        released = await release(tx, Request, held, due_at=now + timedelta(seconds=LOOK_S), looking=looking)
        if released and looking != request.looking:
            await show_again(tx, request, now)
    ctx.hints.outbox.set()


def _so_far(ranked: Ranked) -> str:
    """Name the first offer that was read, without comparing it with others; empty without one."""
    if not ranked.options:
        return ""
    offer, costs = ranked.options[0].offer, ranked.options[0].estimate
    gpus = machine(offer.nodes, offer.gpu_count, offer.gpu)
    return f"So far: {gpus} at {cloud_title(offer.cloud)}, about {usd(costs.expected_usd)}."
