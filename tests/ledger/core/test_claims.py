"""Claims: who may work on a row, until when, and what happens to what changed meanwhile."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from ledger.core.claims import Claim, claim, claim_rows, next_due, release, wake
from ledger.core.events import announce
from ledger.engine.db import Database
from ledger.kernel.states import InboxState, InstanceState, NotificationKind, RequestState, SessionState
from ledger.models import Inbox, Instance, Request
from tests.support import rows
from tests.support.clock import START

LEASE = timedelta(seconds=30)
ROOT = Path(__file__).parents[3]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


async def take(
    db: Database, now: datetime, *, limit: int = 10, states: Collection[RequestState] = (RequestState.QUOTING,)
) -> list[Claim]:
    return await claim(db, Request, now=now, states=states, limit=limit, lease=LEASE)


async def give_back(db: Database, held: Claim, due_at: datetime | None, **values: Any) -> bool:
    async with db.write() as tx:
        return await release(tx, Request, held, due_at=due_at, **values)


async def stored(db: Database, row_id: str) -> Request:
    async with db.read() as tx:
        return await tx.get_one(Request, row_id)


async def asked(db: Database, **values: Any) -> str:
    async with db.write() as tx:
        return (await rows.request(tx, values.pop("state", RequestState.QUOTING), **values)).id


async def test_only_due_rows_in_the_states_asked_for(db: Database) -> None:
    due = await asked(db, due_at=at(0))
    await asked(db, due_at=at(60))
    await asked(db, due_at=None)
    await asked(db, state=RequestState.PENDING, due_at=at(0))
    held = await take(db, at(1))
    assert [one.row_id for one in held] == [due]
    assert await take(db, at(1)) == []
    assert [one.row_id for one in await take(db, at(1), states={RequestState.PENDING})] != [due]


async def test_the_longest_overdue_come_first_and_the_limit_holds(db: Database) -> None:
    ids = [await asked(db, due_at=at(-n)) for n in (1, 3, 2)]
    assert [one.row_id for one in await take(db, at(0), limit=2)] == [ids[1], ids[2]]
    assert [one.row_id for one in await take(db, at(0), limit=2)] == [ids[0]]


async def test_a_claim_gives_the_row_as_it_left_it(db: Database) -> None:
    ids = [await asked(db, due_at=at(-n)) for n in (1, 2)]
    asks: Any = {"now": at(0), "states": {RequestState.QUOTING}, "limit": 10, "lease": LEASE}
    held = await claim_rows(db, Request, **asks)
    assert [(one.row_id, row.id, row.claim_token == one.token) for one, row in held] == [
        (row_id, row_id, True) for row_id in reversed(ids)
    ]
    assert {row.claim_until for _, row in held} == {at(30)}
    again = await claim_rows(db, Request, **{**asks, "now": at(30)})
    assert [(one.taken_over, row.claim_until) for one, row in again] == [(True, at(60)), (True, at(60))]
    assert await claim_rows(db, Request, **asks) == []


async def test_a_claim_expires_and_its_late_result_is_discarded(db: Database) -> None:
    row_id = await asked(db)
    (first,) = await take(db, at(0))
    assert await take(db, at(29.999)) == []
    (second,) = await take(db, at(30))
    assert second.row_id == row_id
    assert second.token != first.token
    assert not await give_back(db, first, at(500), outcome="too late")
    assert await give_back(db, second, None, outcome="in time")
    kept = await stored(db, row_id)
    assert (kept.outcome, kept.due_at, kept.claim_token, kept.claim_until) == ("in time", None, None, None)
    assert not await give_back(db, second, at(500))


async def test_a_row_given_back_is_due_when_it_was_said(db: Database) -> None:
    await asked(db)
    (held,) = await take(db, at(0))
    assert await give_back(db, held, at(10))
    assert await take(db, at(9)) == []
    assert len(await take(db, at(10))) == 1


@pytest.mark.parametrize("next_due", [None, at(600)], ids=["done", "later"])
async def test_a_wake_during_the_work_is_not_slept_over(db: Database, next_due: datetime | None) -> None:
    row_id = await asked(db)
    (held,) = await take(db, at(0))
    async with db.write() as tx:
        await wake(tx, Request, row_id, at(5))
    assert await take(db, at(6)) == []  # The claim still holds.
    assert await give_back(db, held, next_due)
    assert (await stored(db, row_id)).due_at == at(5)
    assert len(await take(db, at(6))) == 1


async def test_an_earlier_time_of_the_worker_wins_over_a_wake(db: Database) -> None:
    row_id = await asked(db)
    (held,) = await take(db, at(0))
    async with db.write() as tx:
        await wake(tx, Request, row_id, at(20))
    assert await give_back(db, held, at(10))
    assert (await stored(db, row_id)).due_at == at(10)


async def test_wake_never_delays(db: Database) -> None:
    never, soon = await asked(db, due_at=None), await asked(db, due_at=at(3))
    async with db.write() as tx:
        await wake(tx, Request, never, at(9))
        await wake(tx, Request, soon, at(9))
    assert (await stored(db, never)).due_at == at(9)
    assert (await stored(db, soon)).due_at == at(3)


async def test_when_anything_is_due_next(db: Database) -> None:
    assert await next_due(db, at(0)) is None
    async with db.write() as tx:
        await rows.request(tx, due_at=at(9))
        await rows.request(tx, due_at=None)
        of = await rows.session(tx, SessionState.RUNNING, due_at=at(7), of=await rows.request(tx, due_at=at(1)))
        await rows.instance(tx, of=of, due_at=at(5))
        await announce(tx, at=at(3), kind=NotificationKind.REPLY, subject="s1", destination="C1")
    assert [await next_due(db, at(after)) for after in (0, 1, 3, 5, 8, 9)] == [at(1), at(3), at(5), at(7), at(9), None]


async def test_a_state_is_not_set_when_giving_back(db: Database) -> None:
    await asked(db)
    (held,) = await take(db, at(0))
    with pytest.raises(TypeError, match=r"only by ledger\.core\.moves\.move"):
        await give_back(db, held, None, state=RequestState.APPROVED)


async def test_the_inbox_is_claimed_by_its_key(db: Database) -> None:
    async with db.write() as tx:
        tx.add(
            Inbox(key="k1", kind="command", body={}, answer={}, state=InboxState.NEW, received_at=at(0), due_at=at(0))
        )
    (held,) = await claim(db, Inbox, now=at(0), states={InboxState.NEW}, limit=5, lease=LEASE)
    assert held.row_id == "k1"
    async with db.write() as tx:
        assert await release(tx, Inbox, held, due_at=None, state=InboxState.FAILED, error="no")
    async with db.read() as tx:
        assert (await tx.get_one(Inbox, "k1")).state is InboxState.FAILED


async def test_instances_are_claimed_like_requests(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, InstanceState.UNKNOWN)
    held = await claim(db, Instance, now=at(0), states=set(InstanceState), limit=5, lease=LEASE)
    assert [one.row_id for one in held] == [row.id]


async def test_two_claimers_at_once_share_nothing(db: Database) -> None:
    ids = {await asked(db) for _ in range(12)}
    taken = await asyncio.gather(*(take(db, at(0), limit=4) for _ in range(6)))
    found = [one.row_id for held in taken for one in held]
    assert len(found) == len(set(found))
    rest = [one.row_id for one in await take(db, at(0), limit=12)]
    assert sorted(found + rest) == sorted(ids)


@pytest.mark.slow
async def test_four_processes_drain_each_row_exactly_once(db_url: str, db: Database) -> None:
    async with db.write() as tx:
        template = await rows.request(tx, RequestState.QUOTING)
        columns = {c.key: getattr(template, c.key) for c in Request.__table__.columns}
        more = [columns | {"id": f"req_{n:016}", "inbox_key": f"drain-{n}"} for n in range(599)]
        await tx.execute(insert(Request), more)
        ids = {template.id} | {row["id"] for row in more}

    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.ledger.drain",
            db_url,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    worked = [line for out, _ in outputs for line in out.decode().split()]
    assert len(worked) == 600
    assert set(worked) == ids
    assert await take(db, at(3600)) == []
