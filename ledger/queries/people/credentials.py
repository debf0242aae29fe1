"""Read and write what people bring to their sessions: a key for its machines, and the names of secrets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.people.credential_kind import CredentialKind
from ledger.kernel.people.transfer_state import TransferState
from ledger.models import Session, SessionCredential, Transfer

Credentials = dict[str, tuple[SessionCredential, ...]]


def _since_then_transferred() -> Any:
    """Build the condition for what came before a transfer, which an earlier release carried out without these rows."""
    return (
        select(Transfer.id)
        .join(Session, Session.id == Transfer.session_id)
        .where(Session.request_id == SessionCredential.request_id)
        .where(Transfer.state == TransferState.ACCEPTED, Transfer.closed_at >= SessionCredential.created_at)
        .exists()
    )


async def credentials_of(
    tx: AsyncSession, request_ids: Collection[str], kind: CredentialKind | None = None
) -> Credentials:
    """Return what counts now for each of these requests and their sessions, in the order in which it came.

    Nothing of an earlier owner counts: not after the session came back to them, either.
    """
    query = select(SessionCredential).where(
        SessionCredential.request_id.in_(list(request_ids)),
        SessionCredential.until.is_(None),
        ~_since_then_transferred(),
    )
    if kind is not None:
        query = query.where(SessionCredential.kind == kind)
    found: dict[str, list[SessionCredential]] = defaultdict(list)
    for row in await tx.scalars(query.order_by(SessionCredential.created_at, SessionCredential.name)):
        found[row.request_id].append(row)
    return {request_id: tuple(rows) for request_id, rows in found.items()}


def own_key(rows: Sequence[SessionCredential]) -> str | None:
    """Return the one key that somebody brought for the machines; None where their registered keys count."""
    return next((row.public_key for row in rows if row.kind is CredentialKind.SSH_KEY), None)


def secret_names(rows: Sequence[SessionCredential]) -> tuple[str, ...]:
    """Return the names of the secrets that the job gets."""
    return tuple(row.name for row in rows if row.kind is CredentialKind.SECRET)


async def secrets_named(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the secrets that the jobs of these requests get now; requests without any are left out."""
    rows = await credentials_of(tx, request_ids, CredentialKind.SECRET) if request_ids else {}
    return {request_id: secret_names(some) for request_id, some in rows.items()}


async def has_left_secrets(tx: AsyncSession, request_id: str) -> bool:
    """Whether the job of a request ever named a secret, whether or not it counts now."""
    query = select(SessionCredential.name).where(SessionCredential.request_id == request_id)
    return await tx.scalar(query.where(SessionCredential.kind == CredentialKind.SECRET).limit(1)) is not None


async def end_credentials(tx: AsyncSession, request_id: str, at: datetime) -> None:
    """Let nothing that was brought to a session count any more, because it gets another owner."""
    mine = (SessionCredential.request_id == request_id, SessionCredential.until.is_(None))
    await tx.execute(update(SessionCredential).where(*mine).values(until=at))
