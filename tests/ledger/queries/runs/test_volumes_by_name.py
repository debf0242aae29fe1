"""Network volumes by their names, and the sessions that use one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from bot.rules.jobs.stored import job_of
from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.states import LIVE_SESSION, RequestState, SessionState
from ledger.models import Session
from ledger.queries.access import Whose
from ledger.queries.runs.volumes_by_name import is_taken, live_jobs
from tests.support import rows
from tests.support.clock import START

ADA, BEN = Whose.of([rows.ADA]), Whose.of([rows.BEN])
HOUR = timedelta(hours=1)


async def test_a_persons_name_of_a_volume_is_taken_until_it_ended(db: Database) -> None:
    async with db.write() as tx:
        volume = await rows.session(tx, SessionState.RUNNING, gpu="volume:data")
        await rows.session(tx, SessionState.TERMINATED, gpu="volume:old")
        await rows.session(tx, SessionState.RUNNING, gpu="models")
        await rows.session(tx, SessionState.QUEUED, gpu="volume:theirs", owner=rows.BEN.ref)
    async with db.read() as tx:
        assert await is_taken(tx, ADA, "data")
        assert not await is_taken(tx, ADA, "data", but=volume.id)
        assert await is_taken(tx, ADA, "data", but="ses_other")
        for name in ("old", "models", "theirs", "dat", ""):
            assert not await is_taken(tx, ADA, name), name
        assert await is_taken(tx, BEN, "theirs")
        assert not await is_taken(tx, BEN, "data")
        assert await is_taken(tx, Whose.of([rows.BEN, rows.ADA]), "data")
        assert not await is_taken(tx, Whose(), "data")


async def test_live_sessions_name_their_volume_the_soonest_to_end_first(db: Database) -> None:
    async def using(tx: Tx, volume: str | None, state: SessionState, deadline_h: int) -> Session:
        job = replace(rows.JOB, volume="data", volume_session=volume)
        request = await rows.request(tx, RequestState.APPROVED, job=job)
        return await rows.session(tx, state, of=request, deadline=START + deadline_h * HOUR)

    async with db.write() as tx:
        late, soon, same = [await using(tx, "ses_data", SessionState.RUNNING, hours) for hours in (5, 2, 2)]
        states = sorted(LIVE_SESSION - {SessionState.RUNNING})
        others = [await using(tx, "ses_data", state, 9 + n) for n, state in enumerate(states)]
        for state in set(SessionState) - LIVE_SESSION:
            await using(tx, "ses_data", state, 1)
        elsewhere = await using(tx, "ses_models", SessionState.RUNNING, 1)
        none = await using(tx, None, SessionState.RUNNING, 1)
    async with db.read() as tx:
        volumes = {session.id: job_of(job).volume_session for session, job in await live_jobs(tx)}
        users = [soon.id, same.id, late.id, *(session.id for session in others)]
        assert [key for key, volume in volumes.items() if volume == "ses_data"] == users
        assert {key: volume for key, volume in volumes.items() if key not in users} == {
            elsewhere.id: "ses_models",
            none.id: None,
        }
