"""Find network volumes by name, and the sessions whose machines use one."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.states import LIVE_SESSION
from ledger.kernel.stored_job import StoredJob
from ledger.kernel.volume_name import VOLUME
from ledger.models import Request, Session
from ledger.queries.access import Whose


async def is_taken(tx: AsyncSession, whose: Whose, name: str, but: str = "") -> bool:
    """Whether a person has a volume of this name that has not ended, other than the session `but`."""
    mine = (Session.gpu == f"{VOLUME}{name}", Session.state.in_(LIVE_SESSION), whose.where(Session.owner))
    return await tx.scalar(select(Session.id).where(*mine, Session.id != but).limit(1)) is not None


async def live_jobs(tx: AsyncSession) -> list[tuple[Session, StoredJob]]:
    """Return the live sessions with their jobs, which name the volume that each uses, the soonest to end first."""
    query = (
        select(Session, Request.job)
        .join(Request, Request.id == Session.request_id)
        .where(Session.state.in_(LIVE_SESSION))
        .order_by(Session.deadline, Session.id)
    )
    return [(session, job) for session, job in await tx.execute(query)]
