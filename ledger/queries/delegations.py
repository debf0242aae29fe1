"""Read and end delegations: who approves in whose place, until a day or until it is revoked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import Delegation
from ledger.queries.access import Whose
from ledger.queries.journal import noted_before


async def delegators_of(tx: AsyncSession, delegate: Whose, now: datetime) -> list[Delegation]:
    """Return the delegations to somebody that are in force, the oldest first."""
    mine = (delegate.where(Delegation.delegate), Delegation.ended_at.is_(None), Delegation.until > now)
    return list(await tx.scalars(select(Delegation).where(*mine).order_by(Delegation.created_at, Delegation.id)))


async def given_by(tx: AsyncSession, delegator: Whose, now: datetime) -> list[Delegation]:
    """Return the delegations from somebody that are in force."""
    mine = (delegator.where(Delegation.delegator), Delegation.ended_at.is_(None), Delegation.until > now)
    return list(await tx.scalars(select(Delegation).where(*mine).order_by(Delegation.created_at, Delegation.id)))


async def in_force(tx: AsyncSession, of: Whose | None, now: datetime) -> Sequence[Delegation]:
    """Return every delegation in force, or those that somebody gave or has."""
    query = select(Delegation).where(Delegation.ended_at.is_(None), Delegation.until > now)
    if of is not None:
        query = query.where(or_(of.where(Delegation.delegator), of.where(Delegation.delegate)))
    return (await tx.scalars(query.order_by(Delegation.created_at, Delegation.id))).all()


async def said_before(tx: AsyncSession, delegator: Whose, key: str, since: datetime) -> bool:
    """Whether the call that `key` names has made or ended a delegation already."""
    mine = select(Delegation.id).where(delegator.where(Delegation.delegator))
    return await noted_before(tx, mine, key, since) is not None


async def end_delegations(tx: AsyncSession, ids: Sequence[str], by: str, now: datetime) -> None:
    """End some delegations from this moment on."""
    mine = (Delegation.id.in_(list(ids)), Delegation.ended_at.is_(None))
    await tx.execute(update(Delegation).where(*mine).values(ended_at=now, ended_by=by))
