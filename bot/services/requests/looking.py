"""Hold a quote back while the rest of a cloud is being read, so that nobody approves a part of the market."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from bot.rules.market.ranking import Ranked
from bot.rules.values.job_text import machine
from bot.rules.values.phrases import cloud_title, usd
from bot.services.market.catalog import MarketAnswer
from bot.services.notifications.request_message import show_again
from bot.services.runtime.context import Context
from ledger.core import Claim, release
from ledger.kernel.job import JobRequest
from ledger.models import Request

#: The pause between two looks at whether the rest was read.
LOOK_S: Final = 2.0
#: After so long the quote is made of what was read; its card says what is missing.
LONGEST: Final = timedelta(minutes=5)


def since(request: Request) -> datetime | None:
    """Return since when the clouds are being read for a request; None where no quote of it was held back."""
    looking = request.looking
    return datetime.fromisoformat(looking["since"]) if looking else None


def is_needed(request: Request, job: JobRequest, market: MarketAnswer, now: datetime) -> bool:
    """Whether the quote waits for the rest of a cloud. A request for one offer waits for that offer alone."""
    began = since(request)
    found = job.offer_id is not None and any(offer.id == job.offer_id for offer in market.offers)
    return bool(market.reading) and not found and (began is None or now - began < LONGEST)


async def look_on(
    ctx: Context, request: Request, held: Claim, market: MarketAnswer, ranked: Ranked, asked_at: datetime
) -> None:
    """Give the request back until the next look, and say on its card which clouds are still being read."""
    began = since(request) or asked_at
    looking: dict[str, Any] = {"clouds": [*market.reading], "since": began.isoformat(), "so_far": _so_far(ranked)}
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        released = await release(tx, Request, held, due_at=now + timedelta(seconds=LOOK_S), looking=looking)
        if released and looking != request.looking:
            await show_again(tx, request, now)
    ctx.hints.outbox.set()


def _so_far(ranked: Ranked) -> str:
    """Name the first offer of what was read, without a word on the others; empty without one."""
    if not ranked.options:
        return ""
    offer, costs = ranked.options[0].offer, ranked.options[0].estimate
    gpus = machine(offer.nodes, offer.gpu_count, offer.gpu)
    return f"So far: {gpus} at {cloud_title(offer.cloud)}, about {usd(costs.expected_usd)}."
