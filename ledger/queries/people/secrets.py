"""Read and write the secrets that people keep for their jobs; their values are encrypted here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.states import SessionState
from ledger.models import Instance, Secret, Session
from ledger.queries.access import Whose
from ledger.queries.people.credentials import secrets_named


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


@dataclass(frozen=True, slots=True)
class SecretJob:
    """Say which secrets the job of an instance gets now, and whose session it is."""

    owner: str
    state: SessionState
    names: tuple[str, ...]


async def secret_jobs(tx: AsyncSession, instance_ids: Collection[str]) -> dict[str, SecretJob]:
    """Return what is known of those of these instances whose job gets secrets."""
    query = (
        select(Instance.id, Session.owner, Session.state, Session.request_id)
        .join(Session, Session.id == Instance.session_id)
        .where(Instance.id.in_(list(instance_ids)))
    )
    rows: Any = (await tx.execute(query)).all()
    names = await secrets_named(tx, {request_id for *_, request_id in rows})
    return {
        key: SecretJob(owner, state, names[request_id]) for key, owner, state, request_id in rows if request_id in names
    }
