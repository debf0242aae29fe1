"""Read with whom a request is shared, and which other request has the same people because its run moves."""

from __future__ import annotations

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.steps.relocation_step import OVER
from ledger.models import Migration, Share


async def shares_of(tx: AsyncSession, request_id: str) -> list[Share]:
    """Return the shares of a request, in the order in which they were added."""
    query = select(Share).where(Share.request_id == request_id)
    return list(await tx.scalars(query.order_by(Share.created_at, Share.person)))


async def moving_with(tx: AsyncSession, request_id: str) -> list[str]:
    """Return the other side of a request's open move: a run that moves has the same people on both machines."""
    mine = or_(Migration.request_id == request_id, Migration.source_request_id == request_id)
    query = select(Migration.request_id, Migration.source_request_id).where(mine, Migration.step.not_in(OVER))
    return sorted({one for row in await tx.execute(query) for one in row if one != request_id})
