"""Read and write offers to transfer a session, and make somebody else its owner."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.people.transfer_state import TransferState
from ledger.kernel.states import ENDABLE_SESSION, RequestState
from ledger.models import Approval, Disk, Instance, Node, Request, Session, Share, Transfer
from ledger.queries.access import Whose
from ledger.queries.people.credentials import end_credentials


async def offer_of(tx: AsyncSession, session_id: str) -> Transfer | None:
    """Return the open offer of a session."""
    found = select(Transfer).where(Transfer.session_id == session_id, Transfer.state == TransferState.OFFERED)
    return await tx.scalar(found.execution_options(populate_existing=True))


async def last_offer_of(tx: AsyncSession, session_id: str) -> Transfer | None:
    """Return the newest offer of a session, open or closed."""
    query = select(Transfer).where(Transfer.session_id == session_id)
    return await tx.scalar(query.order_by(Transfer.created_at.desc(), Transfer.id.desc()).limit(1))


async def is_offered(tx: AsyncSession, session_id: str, whose: Whose) -> bool:
    """Whether a session is offered to somebody now."""
    found = await offer_of(tx, session_id)
    return found is not None and found.to_person in whose


async def left_at(tx: AsyncSession, request_id: str, whose: Whose) -> datetime | None:
    """Return when somebody last gave away the session that a request is about; None where they never did."""
    family = select(func.coalesce(Request.parent_id, Request.id)).where(Request.id == request_id).scalar_subquery()
    query = (
        select(Transfer.closed_at)
        .join(Session, Session.id == Transfer.session_id)
        .where(Session.request_id == family, Transfer.state == TransferState.ACCEPTED)
        .where(whose.where(Transfer.from_owner))
    )
    return await tx.scalar(query.order_by(Transfer.closed_at.desc()).limit(1))


async def close_offer(tx: AsyncSession, transfer_id: str, state: TransferState, at: datetime) -> bool:
    """Close an offer, if it is still open; False when somebody else has closed it."""
    still = (Transfer.id == transfer_id, Transfer.state == TransferState.OFFERED)
    closed = update(Transfer).where(*still).values(state=state, closed_at=at).returning(Transfer.id)
    return (await tx.execute(closed)).first() is not None


async def offers_to_close(tx: AsyncSession, now: datetime, limit: int) -> list[Transfer]:
    """List open offers that have expired, or whose session is ending or has ended."""
    query = (
        select(Transfer)
        .join(Session, Session.id == Transfer.session_id)
        .where(Transfer.state == TransferState.OFFERED)
        .where(or_(Transfer.expires_at <= now, Session.state.not_in(ENDABLE_SESSION)))
        .order_by(Transfer.expires_at, Transfer.id)
        .limit(limit)
    )
    return list(await tx.scalars(query))


async def undecided_of(tx: AsyncSession, request_id: str) -> list[Request]:
    """Return the requests about a session that are not decided yet, such as an extension."""
    mine = (Request.parent_id == request_id, Request.state.in_([RequestState.QUOTING, RequestState.PENDING]))
    return list(await tx.scalars(select(Request).where(*mine).order_by(Request.created_at)))


async def votes_of(tx: AsyncSession, request_id: str) -> list[Approval]:
    """Return the approvals of a request and of what was requested on top of it, the oldest first.

    Only of what was approved in the end: one of two votes on a request that expired approved nothing.
    """
    of_session = or_(Request.id == request_id, Request.parent_id == request_id)
    family = select(Request.id).where(of_session, Request.state == RequestState.APPROVED)
    query = select(Approval).where(Approval.request_id.in_(family), Approval.decision == "approve")
    return list(await tx.scalars(query.order_by(Approval.at, Approval.id)))


async def change_owner(tx: AsyncSession, session: Session, to: str, shares: Collection[str], at: datetime) -> None:
    """Make `to` the owner of a session, its requests and its retained disk.

    The token for the API of the machine is the earlier owner's, so it opens nothing any more, and the key and the
    secrets that they brought count no more. `shares` are the names under which the session was shared with the new
    owner.
    """
    family = or_(Request.id == session.request_id, Request.parent_id == session.request_id)
    await tx.execute(update(Request).where(family).values(requester=to))
    await tx.execute(update(Session).where(Session.id == session.id).values(owner=to))
    await tx.execute(update(Disk).where(Disk.session_id == session.id, Disk.ended_at.is_(None)).values(owner=to))
    machines = select(Instance.id).where(Instance.session_id == session.id)
    tokenless = update(Node).where(Node.instance_id.in_(machines))
    await tx.execute(tokenless.values(api_token_hash=None, api_token_at=None))
    theirs = (Share.request_id == session.request_id, Share.person.in_(list(shares)))
    await tx.execute(delete(Share).where(*theirs))
    await end_credentials(tx, session.request_id, at)
    await tx.refresh(session)
