"""Secrets by the person who keeps them, and by the jobs that name them."""

from __future__ import annotations

from dataclasses import replace

from ledger.engine.db import Database
from ledger.kernel.people.credential_kind import CredentialKind
from ledger.kernel.states import SessionState
from ledger.models import Secret
from ledger.queries.access import Whose
from ledger.queries.people.secrets import SecretJob, forget_secret, secret_jobs, secrets_of
from tests.support import rows
from tests.support.clock import START

ADA, BEN = Whose.of([rows.ADA]), Whose.of([rows.BEN])


def secret(person: str, name: str) -> Secret:
    return Secret(person=person, name=name, ciphertext="sealed", created_at=START, updated_at=START)


async def test_everybody_has_secrets_of_their_own(db: Database) -> None:
    async with db.write() as tx:
        tx.add_all([secret(rows.ADA.ref, "HF_TOKEN"), secret(rows.ADA.ref, "WANDB"), secret(rows.BEN.ref, "HF_TOKEN")])
    async with db.read() as tx:
        assert [one.name for one in await secrets_of(tx, ADA)] == ["HF_TOKEN", "WANDB"]
        assert [one.name for one in await secrets_of(tx, ADA, ["WANDB", "OTHER"])] == ["WANDB"]
    async with db.write() as tx:
        assert await forget_secret(tx, ADA, "HF_TOKEN")
        assert not await forget_secret(tx, ADA, "HF_TOKEN")
    async with db.read() as tx:
        assert [one.name for one in await secrets_of(tx, ADA)] == ["WANDB"]
        assert [one.name for one in await secrets_of(tx, BEN)] == ["HF_TOKEN"]


async def test_only_jobs_that_name_secrets_are_found(db: Database) -> None:
    async with db.write() as tx:
        asked = await rows.request(tx, job=replace(rows.JOB, secrets=("IN_ITS_JOB",)))
        session = await rows.session(tx, SessionState.RUNNING, request_id=asked.id)
        await rows.credential(tx, asked, CredentialKind.SECRET, "HF_TOKEN")
        names, plain = await rows.instance(tx, of=session), await rows.instance(tx)
    async with db.read() as tx:
        found = await secret_jobs(tx, [names.id, plain.id])
        assert list(found) == [names.id]
        assert found[names.id] == SecretJob(session.owner, SessionState.RUNNING, ("HF_TOKEN",))
