"""Find network volumes by name, and the sessions whose machines use one."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.job import VOLUME
from ledger.kernel.states import LIVE_SESSION
from ledger.models import Request, Session
from ledger.queries.access import Whose


async def is_taken(tx: AsyncSession, whose: Whose, name: str, but: str = "") -> bool:
    """Whether a person has a volume of this name that has not ended, other than the session `but`."""
    mine = (Session.gpu == f"{VOLUME}{name}", Session.state.in_(LIVE_SESSION), whose.where(Session.owner))
    return await tx.scalar(select(Session.id).where(*mine, Session.id != but).limit(1)) is not None


async def users_of(tx: AsyncSession, volume_session: str) -> list[Session]:
    """Return the live sessions that were requested with this volume, the soonest to end first."""
    query = (
        select(Session, Request)
        .join(Request, Request.id == Session.request_id)
        .where(Session.state.in_(LIVE_SESSION))
        .order_by(Session.deadline, Session.id)
    )
    return [session for session, request in await tx.execute(query) if request.job.volume_session == volume_session]
