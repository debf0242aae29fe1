"""Jobs of before named keys, shares and secrets: the step makes rows of them once, and only of whose they were."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from bot.rules.jobs.stored import job_of
from bot.rules.nodes.authorized_keys import fingerprint
from ledger.engine.db import Database
from ledger.kernel.people.transfer_state import TransferState
from ledger.kernel.states import RequestState
from ledger.kernel.steps.relocation_step import MigrationStep
from ledger.models import Migration, Request, SessionCredential, Share, Transfer
from ledger.queries.people.credentials import credentials_of
from migrations import run
from tests.ledger.engine.schema import expected, triggers
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHMwCHH0TBaOfJSd4sdQ5gwsm7j/UwAXxaJnI06ctNuO"
ADA, BEN, EVE = rows.ADA.ref, rows.BEN.ref, "operator:eve"
REQUESTS: Any = sa.table(
    "requests",
    sa.column("id", sa.String()),
    sa.column("job", sa.JSON().with_variant(postgresql.JSONB(), "postgresql")),
)


async def named(db: Database, *request_ids: str, **people: Any) -> None:
    """Write into the jobs of these requests what the release of before had there."""
    async with db.write() as tx:
        for one in request_ids:
            mine = REQUESTS.c.id == one
            job = (await tx.execute(sa.select(REQUESTS.c.job).where(mine))).scalar_one()
            await tx.execute(sa.update(REQUESTS).where(mine).values(job={**job, **people}))


async def people_in(db: Database, request_id: str) -> tuple[Any, ...]:
    """What the job of a request has in the fields of before."""
    async with db.read() as tx:
        job = (await tx.execute(sa.select(REQUESTS.c.job).where(REQUESTS.c.id == request_id))).scalar_one()
    return tuple(job[name] for name in ("public_key", "share", "secrets"))


async def stored(db: Database) -> dict[tuple[str, str], tuple[str, bool]]:
    """Every row by its request and kind: whose it is, and whether it is over."""
    async with db.read() as tx:
        return {
            (one.request_id, str(one.kind)): (one.person, one.until is not None)
            for one in await tx.scalars(sa.select(SessionCredential))
        }


async def test_a_job_of_before_becomes_rows_once_and_its_fields_stay_empty(db: Database) -> None:
    async with db.write() as tx:
        asked = await rows.request(tx, RequestState.APPROVED)
        more = await rows.request(tx, parent_id=asked.id)
        await rows.request(tx)
        tx.add(Share(request_id=asked.id, person=EVE, shared_by=ADA, created_at=START))
    await run.downgrade(db, "0070")
    await named(db, asked.id, more.id, public_key=KEY, share=[EVE, "operator:unshared"], secrets=["HF_TOKEN", "WANDB"])
    await run.upgrade(db)
    await run.check(db)
    assert await triggers(db) == expected(db)
    async with db.read() as tx:
        found = (await credentials_of(tx, [asked.id, more.id]))[asked.id]
        assert job_of((await tx.get_one(Request, asked.id)).job) == rows.JOB
    assert {(one.name, one.public_key, one.person, one.added_by, one.created_at) for one in found} == {
        (fingerprint(KEY), KEY, ADA, ADA, START),
        ("HF_TOKEN", None, ADA, ADA, START),
        ("WANDB", None, ADA, ADA, START),
    }
    assert {request_id for request_id, _ in await stored(db)} == {asked.id}
    for one in (asked.id, more.id):
        assert await people_in(db, one) == (None, [], [])
    await run.downgrade(db, "0070")
    assert await people_in(db, asked.id) == (KEY, [EVE], ["HF_TOKEN", "WANDB"])
    assert await people_in(db, more.id) == (None, [], [])
    await run.upgrade(db)
    assert len(await stored(db)) == 2


async def test_what_came_to_another_owner_is_over(db: Database) -> None:
    """Ada gave her session to Ben; his copies of it, and their copies, brought her key along."""
    async with db.write() as tx:
        given = await rows.request(tx, RequestState.APPROVED, requester=BEN)
        session = await rows.session(tx, of=given)
        values = {"session_id": session.id, "from_owner": ADA, "to_person": BEN, "offered_by": ADA}
        times = {"created_at": START, "expires_at": START + HOUR, "closed_at": START + HOUR}
        tx.add(Transfer(id="trf_1", state=TransferState.ACCEPTED, **values, **times))
        later = START + 2 * HOUR
        again, target = [await rows.request(tx, at=later, requester=BEN) for _ in range(2)]
        further = await rows.request(tx, at=later, requester=BEN)
        hers = await rows.request(tx, at=later)
        for source, to in ((given, target), (target, further)):
            moving = {"source_session_id": session.id, "source_request_id": source.id, "step": MigrationStep.DONE}
            saved = {"saved_from": "s3://b/run", "saved_bytes": 1, "saved_at": START}
            stamps = {"created_at": later, "step_at": later}
            tx.add(Migration(id=f"mig_{to.id[-4:]}", request_id=to.id, **moving, **saved, **stamps))
    await run.downgrade(db, "0070")
    copies = (again.id, target.id, further.id)
    await named(db, given.id, hers.id, *copies, public_key=KEY, secrets=["HF_TOKEN"])
    await run.upgrade(db)
    assert await stored(db) == {
        (given.id, "ssh_key"): (ADA, True),
        (given.id, "secret"): (ADA, True),
        (again.id, "ssh_key"): (ADA, True),
        # Ben has a secret of that name: his request was refused otherwise.
        (again.id, "secret"): (BEN, False),
        (target.id, "ssh_key"): (ADA, True),
        (target.id, "secret"): (ADA, True),
        (further.id, "ssh_key"): (ADA, True),
        (further.id, "secret"): (ADA, True),
        (hers.id, "ssh_key"): (ADA, False),
        (hers.id, "secret"): (ADA, False),
    }
