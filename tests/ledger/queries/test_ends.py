"""What must end, in one query, and which replicas can write."""

from __future__ import annotations

from datetime import timedelta

from bot.rules.jobs.stored import checkpoint_of
from ledger.engine.db import Database
from ledger.kernel.end_reason import EndReason
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from ledger.models import Mark
from ledger.queries.access import lock_consumer
from ledger.queries.ends import forget_replica, must_end, note_replica, other_replicas, shows_first_requests
from tests.support import rows
from tests.support.builders import asked
from tests.support.clock import START

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


async def test_what_a_cloud_may_bill_is_read_in_one_query(db: Database) -> None:
    async with db.write() as tx:
        found = [
            await rows.instance(tx, InstanceState.LIVE, of=await rows.session(tx, SessionState.RUNNING)),
            await rows.instance(tx, InstanceState.STOPPED, of=await rows.session(tx, SessionState.STOPPED)),
            await rows.instance(
                tx,
                InstanceState.TERMINATING,
                of=await rows.session(tx, SessionState.TERMINATING, end_code=EndReason.ASKED),
                terminate_asked_at=START,
            ),
        ]
        sent = [await rows.instance(tx, one, sent_at=START) for one in (InstanceState.SENDING, InstanceState.UNKNOWN)]
        for state in (InstanceState.READY, InstanceState.GONE, InstanceState.REJECTED, InstanceState.TOMBSTONE):
            await rows.instance(tx, state)
    async with db.read() as tx:
        with asked() as statements:
            listed = await must_end(tx, checkpoint_of)
        assert len(statements) == 1
        one = await must_end(tx, checkpoint_of, found[0].id)
    assert {item.instance_id for item in listed} == {row.id for row in (*found, *sent)}
    assert [(item.ref, item.label, item.deadline) for item in one] == [
        (found[0].ref, found[0].label, START + timedelta(hours=2))
    ]
    ending = next(item for item in listed if item.ending)
    assert (ending.session_end, ending.ordered_at) == (EndReason.ASKED, START)
    assert {item.session_end for item in listed if not item.ending} == {""}
    assert {item.deadline for item in listed if not item.ref} == {START + timedelta(hours=2)}
    assert [bool(item.ref) for item in listed].count(False) == len(sent)
    assert {item.recovery_since for item in listed} == {None}


async def test_a_programs_session_names_the_person_who_answers_for_it(db: Database) -> None:
    async with db.write() as tx:
        await lock_consumer(tx, "consumer:atlas", "slack:T1/U0ALICE", "operator:ada", START)
        for owner in ("consumer:atlas", "consumer:unknown", "operator:ada"):
            request = await rows.request(tx, RequestState.APPROVED, requester=owner)
            session = await rows.session(tx, SessionState.RUNNING, of=request, owner=owner)
            await rows.instance(tx, InstanceState.LIVE, of=session)
    async with db.read() as tx:
        found = sorted(one.owner for one in await must_end(tx, checkpoint_of))
    assert found == ["consumer:unknown", "operator:ada", "slack:T1/U0ALICE"]


async def test_every_row_says_since_when_recovery_mode_is_on(db: Database) -> None:
    async with db.write() as tx:
        kept = await rows.instance(tx, of=await rows.session(tx, SessionState.RUNNING))
        await rows.stray(tx, OrphanState.QUARANTINED, of=kept, at=START)  # The ledger knows this one.
        await rows.stray(tx, OrphanState.QUARANTINED, at=START + 2 * MINUTE)
        await rows.stray(tx, OrphanState.QUARANTINED, at=START + MINUTE)
    async with db.read() as tx:
        assert [item.recovery_since for item in await must_end(tx, checkpoint_of)] == [START + MINUTE]


async def test_replicas_count_while_they_write_and_are_forgotten_later(db: Database) -> None:
    async with db.write() as tx:
        for name, at in (("old", START - 2 * DAY), ("slow", START - 5 * MINUTE), ("mine", START), ("theirs", START)):
            await note_replica(tx, name, at, START - 9 * DAY)
        await note_replica(tx, "mine", START + MINUTE, START - DAY)
    async with db.read() as tx:
        assert await other_replicas(tx, "mine", START - MINUTE) == 1
        assert await other_replicas(tx, "mine", START - 9 * DAY) == 2  # The oldest is forgotten.
        assert await other_replicas(tx, "theirs", START + MINUTE) == 1
    async with db.write() as tx:
        await forget_replica(tx, "theirs")
    async with db.read() as tx:
        assert await other_replicas(tx, "mine", START - MINUTE) == 0


async def test_a_release_that_notes_nothing_about_itself_shows_first_requests_while_it_runs(db: Database) -> None:
    async with db.write() as tx:
        tx.add(Mark(name="replica/before", value="", at=START))
        await note_replica(tx, "mine", START + MINUTE, START - DAY)
        assert await shows_first_requests(tx, START + MINUTE)
        assert not await shows_first_requests(tx, START + 2 * MINUTE)
        await note_replica(tx, "before", START + MINUTE, START - DAY)  # It runs this release now.
        assert not await shows_first_requests(tx, START + MINUTE)
