"""What many undecided requests are about: their options as they are shown, in a fixed number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import Consumer, Option, Quote, Request

OVERRIDE = "override_12h"


async def shown_options(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, list[Option]]:
    """The options of the current quote of each request."""
    found: defaultdict[str, list[Option]] = defaultdict(list)
    query = (
        select(Quote.request_id, Option)
        .join(Quote, Quote.id == Option.quote_id)
        .join(Request, (Request.id == Quote.request_id) & (Request.quote_version == Quote.version))
        .where(Request.id.in_(sorted(request_ids)))
        .order_by(Option.rank)
    )
    rows: Any = await tx.execute(query)
    for request_id, option in rows:
        found[request_id].append(option)
    return found


async def opened_at(tx: AsyncSession, requests: Sequence[Request]) -> dict[str, datetime]:
    """Since when each request waits for a decision: since its newest offers, or since it was made."""
    query = (
        select(Quote.request_id, Quote.created_at)
        .join(Request, (Request.id == Quote.request_id) & (Request.quote_version == Quote.version))
        .where(Request.id.in_(sorted(one.id for one in requests)))
    )
    rows: Any = await tx.execute(query)
    return {**{one.id: one.created_at for one in requests}, **dict(rows.all())}


async def parents_of(tx: AsyncSession, requests: Sequence[Request]) -> dict[str, Request]:
    """The requests that these ones are about, by their ids."""
    ids = sorted({one.parent_id for one in requests if one.parent_id})
    return {one.id: one for one in await tx.scalars(select(Request).where(Request.id.in_(ids)))} if ids else {}


async def people_behind(tx: AsyncSession, refs: Collection[str]) -> dict[str, str]:
    """The people who answer for programs, by the programs' references."""
    if not refs:
        return {}
    return {one.actor: one.owner for one in await tx.scalars(select(Consumer).where(Consumer.actor.in_(sorted(refs))))}
