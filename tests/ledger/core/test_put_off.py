"""What a wrong clock made due, or claimed, much too late is due now, in every table that has a due time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from ledger.core.claims import claim, release
from ledger.core.put_off import PUT_OFF, bring_forward, put_off
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Base, Instance, Request, Session
from tests.support import rows
from tests.support.clock import START

YEAR, QUARTER, LEASE = timedelta(days=365), timedelta(minutes=15), timedelta(seconds=60)


async def put_right(db: Database, model: type[Any]) -> int:
    """Bring forward what is late in this table, and nothing is late anywhere after that."""
    async with db.write() as tx:
        named = model in await put_off(tx, START + QUARTER)
        found = await bring_forward(tx, model, START, START + QUARTER)
        assert named == bool(found)
        assert await put_off(tx, START + QUARTER) == []
    return found


async def due(db: Database, model: type[Any], row_id: str) -> datetime | None:
    async with db.read() as tx:
        return (await tx.get_one(model, row_id)).due_at  # type: ignore[no-any-return]


def test_every_table_with_a_due_time_is_known() -> None:
    assert {mapper.class_ for mapper in Base.registry.mappers if "due_at" in mapper.columns} == set(PUT_OFF)


@pytest.mark.parametrize("model", list(PUT_OFF), ids=lambda model: model.__name__)
async def test_nothing_is_late_in_an_empty_table(db: Database, model: type[Any]) -> None:
    assert await put_right(db, model) == 0


async def test_an_instance_that_ends_next_year_ends_now(db: Database) -> None:
    year = START + YEAR
    async with db.write() as tx:
        late = (await rows.instance(tx, InstanceState.TERMINATING, due_at=year, terminate_asked_at=year)).id
        soon = (await rows.instance(tx, InstanceState.TERMINATING, due_at=START + QUARTER)).id
    assert await put_right(db, Instance) == 1
    assert (await due(db, Instance, late), await due(db, Instance, soon)) == (START, START + QUARTER)
    async with db.read() as tx:
        assert (await tx.get_one(Instance, late)).terminate_asked_at == START


async def test_a_login_that_is_taken_until_next_year_is_free(db: Database) -> None:
    async with db.write() as tx:
        one = (await rows.instance(tx, InstanceState.LIVE, login_until=START + YEAR)).id
    assert await put_right(db, Instance) == 1
    async with db.read() as tx:
        assert (await tx.get_one(Instance, one)).login_until == START


@pytest.mark.parametrize("woken", [False, True])
async def test_a_claim_until_next_year_has_run_out_and_its_row_is_taken_over(db: Database, *, woken: bool) -> None:
    """The next claim must say that it took the row over: the first process may have bought something."""
    states = {InstanceState.SENDING}
    async with db.write() as tx:
        row_id = (await rows.instance(tx, InstanceState.SENDING, due_at=START)).id
    (wrong,) = await claim(db, Instance, now=START + YEAR, states=states, limit=1, lease=LEASE)
    if woken:
        async with db.write() as tx:
            (await tx.get_one(Instance, row_id)).due_at = START
    assert await claim(db, Instance, now=START, states=states, limit=1, lease=LEASE) == []
    assert await put_right(db, Instance) == 1
    (taken,) = await claim(db, Instance, now=START, states=states, limit=1, lease=LEASE)
    assert (taken.row_id, taken.taken_over) == (row_id, True)
    async with db.write() as tx:
        assert not await release(tx, Instance, wrong, due_at=None), "what comes late is discarded"


async def test_a_session_is_due_late_for_its_end_and_never_after_it(db: Database) -> None:
    async with db.write() as tx:
        end = START + timedelta(days=2)
        kept = (await rows.session(tx, SessionState.RUNNING, deadline=end, due_at=end)).id
        late = (await rows.session(tx, SessionState.RUNNING, deadline=end, due_at=START + YEAR)).id
    assert await put_right(db, Session) == 1
    assert (await due(db, Session, kept), await due(db, Session, late)) == (end, START)


@pytest.mark.parametrize(("state", "moved"), [(RequestState.QUOTING, 1), (RequestState.WAITING, 0)])
async def test_a_request_that_starts_next_year_keeps_its_start(db: Database, state: RequestState, moved: int) -> None:
    async with db.write() as tx:
        await rows.request(tx, state, due_at=START + YEAR)
    assert await put_right(db, Request) == moved
