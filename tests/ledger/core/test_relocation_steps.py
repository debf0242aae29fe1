"""Steps of migrations: which may follow, who moves first, and which looks are due."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from ledger.core.moves import IllegalMove, StaleMove
from ledger.core.relocation_steps import forget_inferred_step, note_look, take_look, take_step
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import SessionState
from ledger.kernel.steps.relocation_step import FOLLOWS, MigrationStep
from ledger.models import Event, Migration
from tests.support import rows
from tests.support.clock import START

MINUTE = timedelta(minutes=1)
LATER = START + MINUTE
LAST_MOVES = [(MigrationStep.DESTROYED, MigrationStep.DONE), (MigrationStep.ENDING, MigrationStep.FAILED)]


async def stored(db: Database, step: MigrationStep = MigrationStep.CHECKED, **values: Any) -> Migration:
    """A migration of a running session."""
    async with db.write() as tx:
        return await rows.migration(tx, await rows.session(tx, SessionState.RUNNING), step, **values)


async def reread(db: Database, row: Migration) -> Migration:
    """The migration as the ledger has it now."""
    async with db.read() as tx:
        return await tx.get_one(Migration, row.id)


async def test_a_step_and_its_journal_row_are_written_together(db: Database) -> None:
    row = await stored(db, clock_from=START, note="Waiting for an approval.")
    async with db.write() as tx:
        moved = await take_step(tx, row, MigrationStep.PROVISIONED, LATER, SYSTEM, "Its machine was created.")
        assert (moved.id, moved.step) == (row.id, MigrationStep.PROVISIONED)
    now = await reread(db, row)
    assert (now.step, now.version, now.note) == (MigrationStep.PROVISIONED, 2, "Its machine was created.")
    # The longest time of a step counts from the step again, and the next look is due at once.
    assert (now.step_at, now.due_at, now.clock_from, now.ended_at) == (LATER, LATER, None, None)
    async with db.read() as tx:
        (event,) = await tx.scalars(select(Event))
        assert (event.subject, event.kind, event.at) == (row.id, EventKind.MIGRATION_STEP, LATER)
        assert (event.actor, event.reason) == (SYSTEM.ref, "Its machine was created.")
        assert (event.before, event.after) == ("checked", "provisioned")
        assert event.data == {"request_id": row.request_id, "session_id": row.source_session_id}


@pytest.mark.parametrize(("before", "last"), LAST_MOVES, ids=str)
async def test_after_the_last_step_no_look_is_due(db: Database, before: MigrationStep, last: MigrationStep) -> None:
    row = await stored(db, before)
    async with db.write() as tx:
        moved = await take_step(tx, row, last, LATER, SYSTEM, "The move ended.", context="Continue at step 10.")
        assert (moved.due_at, moved.ended_at, moved.context) == (None, LATER, "Continue at step 10.")


async def test_a_value_of_the_caller_counts_before_the_usual_one(db: Database) -> None:
    row = await stored(db, MigrationStep.READY)
    async with db.write() as tx:
        values = {"due_at": LATER + MINUTE, "taken_over_at": LATER}
        moved = await take_step(tx, row, MigrationStep.PRESENT, LATER, SYSTEM, "Its source was lost.", **values)
        assert (moved.due_at, moved.taken_over_at) == (LATER + MINUTE, LATER)


async def test_no_step_is_taken_that_does_not_follow(db: Database) -> None:
    for step in MigrationStep:
        row = await stored(db, step)
        async with db.write() as tx:
            for following in set(MigrationStep) - FOLLOWS[step]:
                with pytest.raises(IllegalMove, match=f"{row.id} is {step} and did not become {following}"):
                    await take_step(tx, row, following, LATER, SYSTEM, "It may not.")
        now = await reread(db, row)
        assert (now.step, now.version) == (step, 1)
    async with db.read() as tx:
        assert (await tx.scalars(select(Event))).all() == []


async def test_of_two_who_read_the_same_step_one_moves_on(db: Database) -> None:
    row = await stored(db)
    other = await reread(db, row)
    async with db.write() as tx:
        await take_step(tx, row, MigrationStep.PROVISIONED, LATER, SYSTEM, "First.")
    with pytest.raises(StaleMove, match=f"{row.id} is checked and did not become ending"):
        async with db.write() as tx:
            await take_step(tx, other, MigrationStep.ENDING, LATER, SYSTEM, "Second.")
    now = await reread(db, row)
    assert (now.step, now.version, now.note) == (MigrationStep.PROVISIONED, 2, "First.")
    async with db.read() as tx:
        assert [event.reason for event in await tx.scalars(select(Event))] == ["First."]


async def test_a_look_is_taken_once_and_only_when_it_is_due(db: Database) -> None:
    row, over = await stored(db), await stored(db, MigrationStep.DONE)
    async with db.write() as tx:
        assert not await take_look(tx, row.id, START - MINUTE, LATER)
        assert await take_look(tx, row.id, START, LATER)
        assert not await take_look(tx, row.id, START, LATER)
        assert not await take_look(tx, over.id, LATER, LATER + MINUTE)
        assert not await take_look(tx, "mig_none", LATER, LATER + MINUTE)
        assert await take_look(tx, row.id, LATER, LATER + MINUTE)
    assert ((await reread(db, row)).due_at, (await reread(db, over)).due_at) == (LATER + MINUTE, None)


async def test_a_look_says_whether_people_read_something_new(db: Database) -> None:
    row = await stored(db, note="Waiting for an approval.")
    async with db.write() as tx:
        assert not await note_look(tx, row, "Waiting for an approval.", LATER, clock_from=LATER)
    now = await reread(db, row)
    assert (now.note, now.due_at, now.clock_from, now.step_at) == ("Waiting for an approval.", LATER, LATER, START)
    async with db.write() as tx:
        assert await note_look(tx, now, "Its machine starts.", LATER + MINUTE)
    newest = await reread(db, row)
    # Without a new one the time from which the step's longest time counts stays.
    assert (newest.note, newest.due_at, newest.clock_from) == ("Its machine starts.", LATER + MINUTE, LATER)
    assert newest.version == 1


async def test_a_look_at_an_earlier_step_writes_nothing(db: Database) -> None:
    row = await stored(db, saved_step=7, is_step_inferred=True)
    before = await reread(db, row)
    async with db.write() as tx:
        await take_step(tx, row, MigrationStep.PROVISIONED, LATER, SYSTEM, "Its machine was created.")
    async with db.write() as tx:
        await note_look(tx, before, "Waiting for an approval.", START + 9 * MINUTE)
        await forget_inferred_step(tx, before)
    now = await reread(db, row)
    assert (now.note, now.due_at) == ("Its machine was created.", LATER)
    assert (now.saved_step, now.is_step_inferred) == (7, True)


@pytest.mark.parametrize(
    ("is_inferred", "left"), [(True, (None, False)), (False, (10, False)), (None, (10, None))], ids=str
)
async def test_only_a_step_that_nothing_names_is_forgotten(
    db: Database, is_inferred: bool | None, left: tuple[int | None, bool | None]
) -> None:
    row = await stored(db, is_step_inferred=is_inferred)
    async with db.write() as tx:
        await forget_inferred_step(tx, row)
    now = await reread(db, row)
    assert (now.saved_step, now.is_step_inferred) == left
