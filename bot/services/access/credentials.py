"""Store what people bring to their sessions: a key for its machines, and the names of secrets of their jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from bot.rules.jobs.job import JobRequest
from bot.rules.nodes.authorized_keys import fingerprint
from ledger.core import Tx
from ledger.kernel.actor import Actor
from ledger.kernel.people.credential_kind import CredentialKind
from ledger.models import SessionCredential
from ledger.queries.people.credentials import credentials_of, secrets_named


def add(tx: Tx, request_id: str, by: Actor, job: JobRequest, now: datetime) -> None:
    """Store the key and the names of secrets that a new request asks for. They are its requester's."""
    mine = {"request_id": request_id, "person": by.ref, "added_by": by.ref, "created_at": now}
    if job.public_key is not None:
        name = fingerprint(job.public_key)
        tx.add(SessionCredential(kind=CredentialKind.SSH_KEY, name=name, public_key=job.public_key, **mine))
    for name in job.secrets:
        tx.add(SessionCredential(kind=CredentialKind.SECRET, name=name, **mine))


async def copy(tx: Tx, source_request_id: str, request_id: str, now: datetime) -> None:
    """Give the target of a move what counts for its source now. Nothing else copies these rows."""
    for row in (await credentials_of(tx, [source_request_id])).get(source_request_id, ()):
        same = {"name": row.name, "public_key": row.public_key, "person": row.person, "added_by": row.added_by}
        tx.add(SessionCredential(request_id=request_id, kind=row.kind, created_at=now, **same))


async def with_secrets(tx: Tx, request_id: str, job: JobRequest) -> JobRequest:
    """Return a job with the names of the secrets that its request gets now: they need an offer with an agent."""
    return replace(job, secrets=(await secrets_named(tx, [request_id])).get(request_id, ()))
