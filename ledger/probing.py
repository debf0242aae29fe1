"""Which machines are to be tried over SSH again."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import Instance
from ledger.states import InstanceState


async def due_for_key(tx: AsyncSession, looked_before: datetime, limit: int) -> list[Instance]:
    """Machines that have been ready and whose host key was last looked at before then, or never at their address."""
    query = (
        select(Instance)
        .where(Instance.state == InstanceState.LIVE, Instance.reachable_at.is_not(None), Instance.wanted.is_(None))
        .where(Instance.ssh_host.is_not(None), Instance.status == "running")
        .where(or_(Instance.host_key_at.is_(None), Instance.host_key_at <= looked_before))
        .order_by(Instance.host_key_at.is_not(None), Instance.host_key_at, Instance.id)
        .limit(limit)
    )
    return list(await tx.scalars(query))
