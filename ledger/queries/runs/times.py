"""Find the instances of sessions that ended lately, to learn from their times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import Instance, Node, Session


async def instances_of_ended(
    tx: AsyncSession, since: datetime, most: int
) -> list[tuple[Instance, dict[str, Any] | None]]:
    """Return the newest instances of sessions that ended since then, at most so many, with their agents' last reports.

    They are in the order of their sessions, and of their creates in each.
    """
    query = (
        select(Instance, Node.report)
        .join(Session, Session.id == Instance.session_id)
        .outerjoin(Node, Node.instance_id == Instance.id)
        .where(Session.ended_at >= since)
        .order_by(Session.id.desc(), Instance.n, Instance.id)
        .limit(most)
    )
    rows: Any = await tx.execute(query)
    return [(row, report) for row, report in rows]
