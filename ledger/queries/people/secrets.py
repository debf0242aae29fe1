"""Read and write the secrets that people keep for their jobs; their values are encrypted here."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import Secret
from ledger.queries.access import Whose


async def secrets_of(tx: AsyncSession, whose: Whose, names: Collection[str] | None = None) -> list[Secret]:
    """Return the secrets of a person under all of their names, the newest last; `names` are the only ones, if any."""
    query = select(Secret).where(whose.where(Secret.person))
    if names is not None:
        query = query.where(Secret.name.in_(sorted(names)))
    return list(await tx.scalars(query.order_by(Secret.updated_at, Secret.person, Secret.name)))


async def forget_secret(tx: AsyncSession, whose: Whose, name: str) -> bool:
    """Delete a person's secret under all of their names; False when there is none."""
    gone = delete(Secret).where(whose.where(Secret.person), Secret.name == name).returning(Secret.name)
    return (await tx.execute(gone)).first() is not None
