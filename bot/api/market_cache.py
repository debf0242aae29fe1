"""Cache serialized answers about the market, so that the same question within a second gets the same bytes.

Prices are read once a minute, so a thousand programs that ask the same question in a second cost as much as one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from bot.rules.jobs.job import JobRequest
from bot.rules.market.sort_key import SortKey
from bot.services.market.document import market_page
from bot.services.runtime.context import Context

#: The most questions whose answers are cached.
KEPT = 200


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """The body of an answer, and the ETag that stays the same while its prices do."""

    etag: str
    body: bytes


@dataclass(slots=True)
class _Place:
    at_s: int = -1
    ready: CachedAnswer | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


#: What was asked, how it is sorted, and how many rows a page has.
_Question = tuple[JobRequest, SortKey, int]


@dataclass(slots=True)
class MarketCache:
    """Cache the first pages of the inventory in one process."""

    _places: OrderedDict[_Question, _Place] = field(default_factory=OrderedDict)

    async def inventory(self, ctx: Context, wanted: JobRequest, sort: SortKey, limit: int) -> CachedAnswer:
        """Return the first page of what is for sale for `wanted` as one JSON document."""
        question = (wanted, sort, limit)
        place = self._places.setdefault(question, _Place())
        self._places.move_to_end(question)
        if len(self._places) > KEPT:
            self._places.popitem(last=False)
        async with place.lock:
            now_s = int(ctx.clock.now().timestamp())
            if place.ready is not None and place.at_s == now_s:
                return place.ready
            listing = await ctx.catalog.inventory(wanted, ctx.policy, sort)
            ready = CachedAnswer(f'"{listing.id}-{limit}"', market_page(listing, 0, limit).model_dump_json().encode())
            # A cloud that did not answer may answer the next call, so an incomplete answer is not cached.
            place.ready = ready if all(one.ok or one.cloud not in ctx.providers for one in listing.answers) else None
            place.at_s = now_s
            return ready
