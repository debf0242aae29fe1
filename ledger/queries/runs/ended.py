"""Find the sessions that ended lately, with what their agents reported."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.stored_job import StoredJob
from ledger.models import Node, Request, Session


async def reports_of_ended(tx: AsyncSession, since: datetime) -> list[tuple[Session, StoredJob, dict[str, Any]]]:
    """Return the last report of every agent whose session ended since then, the newest agent of a session first."""
    query = (
        select(Session, Request.job, Node.report)
        .join(Node, Node.session_id == Session.id)
        .join(Request, Request.id == Session.request_id)
        .where(Session.ended_at >= since)
        .order_by(Session.ended_at, Session.id, Node.made_at.desc(), Node.instance_id)
    )
    rows: Any = await tx.execute(query)
    return [tuple(row) for row in rows]
