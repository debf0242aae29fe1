"""Read when a person made their latest requests, whatever became of them since."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import CountedRequest


async def latest_requests(
    tx: AsyncSession, names: Collection[str], since: datetime, most: int, counted_as: str
) -> list[datetime]:
    """Return when at most so many requests of a person were made after `since`, the newest first, by one index.

    Only those that are counted together, under `counted_as`.
    `names` are keys of one person. A request that counts under two of them is one.
    """
    mine = (CountedRequest.person.in_(names), CountedRequest.counted_as == counted_as, CountedRequest.at > since)
    query = select(CountedRequest.request_id, CountedRequest.at).where(*mine).distinct()
    rows: Any = await tx.execute(query.order_by(CountedRequest.at.desc(), CountedRequest.request_id).limit(most))
    return [at for _, at in rows]
