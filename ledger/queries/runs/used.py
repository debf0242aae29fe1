"""Find the times in which instances were billed for their GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import Instance, Session


@dataclass(frozen=True, slots=True)
class InstanceUse:
    """Hold from when until when one instance was billed; `until` is None while it is."""

    session_id: str
    cloud: str
    gpu: str
    count: int
    price_usd_h: Decimal
    since: datetime
    until: datetime | None


async def billed_times(tx: AsyncSession, since: datetime, until: datetime) -> list[InstanceUse]:
    """Return the instances that were billed at any time in [since, until), in the order of their sessions."""
    ended = func.coalesce(Instance.billing_until, Instance.ended_at)
    query = (
        select(
            Session.id,
            Instance.cloud,
            Session.gpu,
            Session.gpu_count,
            Instance.price_usd_h,
            Instance.billing_from,
            ended,
        )
        .join(Session, Session.id == Instance.session_id)
        .where(Instance.billing_from < until, or_(ended.is_(None), ended > since))
        .order_by(Session.id, Instance.n)
    )
    rows: Any = await tx.execute(query)
    return [InstanceUse(*row) for row in rows]


async def any_billed_before(tx: AsyncSession, at: datetime) -> bool:
    """Whether any instance was billed before then."""
    return await tx.scalar(select(Instance.id).where(Instance.billing_from < at).limit(1)) is not None
