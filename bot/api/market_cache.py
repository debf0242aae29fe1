"""Cache serialized answers about the market, so that the same question within a second gets the same bytes.

Prices are read once a minute, and an answer shows their age in seconds, so it changes at most once a second. A thousand
programs that ask the same question cost as much as one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from bot.services.market.document import market_document
from bot.services.runtime.context import Context
from ledger.kernel.job import JobRequest

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


@dataclass(slots=True)
class MarketCache:
    """Cache the inventory answers of one process."""

    _places: OrderedDict[JobRequest, _Place] = field(default_factory=OrderedDict)

    async def inventory(self, ctx: Context, wanted: JobRequest) -> CachedAnswer:
        """Return the ranked market for `wanted` as one JSON document."""
        place = self._places.setdefault(wanted, _Place())
        self._places.move_to_end(wanted)
        if len(self._places) > KEPT:
            self._places.popitem(last=False)
        async with place.lock:
            now_s = int(ctx.clock.now().timestamp())
            if place.ready is not None and place.at_s == now_s:
                return place.ready
            found = await ctx.catalog.inventory(wanted, ctx.policy)
            document = market_document(found, wanted)
            ready = CachedAnswer(f'"{document.fingerprint}"', document.model_dump_json().encode())
            # A cloud that did not answer may answer the next call, so an incomplete answer is not cached.
            place.ready = ready if all(one.ok or one.cloud not in ctx.providers for one in found.answers) else None
            place.at_s = now_s
            return ready
