"""The inbox: on disk before the answer, in groups, each message processed by one holder."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select, text
from sqlalchemy.exc import DBAPIError

from ledger.core.claims import claim
from ledger.core.inbox import GROUP_MAX, Inbound, InboxWriter, Receipt, StorageUnknown
from ledger.engine.db import Database
from ledger.kernel.states import InboxState
from ledger.models import Inbox
from tests.scenarios.kills.commit_cuts import Way, commit_cuts
from tests.support.clock import START
from tests.support.databases import somebody_waits

LEASE = timedelta(seconds=30)


def message(key: str, answer: str = "taken", **body: Any) -> Inbound:
    return Inbound(key, "command", body or {"text": key}, {"text": answer}, START)


@pytest.fixture
async def inbox(db: Database) -> AsyncIterator[InboxWriter]:
    writer = InboxWriter(db, LEASE)
    yield writer
    await writer.drain()


async def due(db: Database, after: timedelta) -> set[str]:
    """The keys that a sweep would take over at this time."""
    held = await claim(db, Inbox, now=START + after, states={InboxState.NEW}, limit=100, lease=LEASE)
    return {one.row_id for one in held}


async def test_a_message_is_on_disk_when_put_returns(db: Database, inbox: InboxWriter) -> None:
    receipt = await inbox.put(message("k1", text="hello"))
    assert receipt.answer == {"text": "taken"}
    assert receipt.claim is not None
    async with db.read() as tx:
        row = await tx.get_one(Inbox, "k1")
    assert (row.body, row.state, row.received_at) == ({"text": "hello"}, InboxState.NEW, START)
    assert row.claim_token == receipt.claim.token


async def test_a_replay_later_gets_the_first_answer_and_no_claim(db: Database, inbox: InboxWriter) -> None:
    await inbox.put(message("k1", "first"))
    assert await inbox.put(message("k1", "second")) == Receipt({"text": "first"}, None)
    inbox.finish("k1")
    await inbox.drain()
    assert await inbox.put(message("k1", "third")) == Receipt({"text": "first"}, None)
    async with db.read() as tx:
        assert (await tx.get_one(Inbox, "k1")).state is InboxState.DONE


async def test_a_replay_in_the_same_group_does_not_hold_the_claim(inbox: InboxWriter) -> None:
    first, second, other = await asyncio.gather(
        inbox.put(message("k1", "first")), inbox.put(message("k1", "second")), inbox.put(message("k2"))
    )
    assert first.claim is not None
    assert second == Receipt({"text": "first"}, None)
    assert other.claim is not None
    assert other.claim.row_id == "k2"


async def test_who_waits_together_shares_a_commit(db: Database, inbox: InboxWriter) -> None:
    commits: list[object] = []
    event.listen(db.writer.sync_engine, "commit", commits.append)
    receipts = await asyncio.gather(*(inbox.put(message(f"k{n}")) for n in range(50)))
    assert len({r.claim.token for r in receipts if r.claim}) == 1
    assert len(commits) == 1
    async with db.read() as tx:
        assert await tx.scalar(select(func.count()).select_from(Inbox)) == 50


async def test_a_group_has_an_end_however_many_wait(inbox: InboxWriter) -> None:
    receipts = await asyncio.gather(*(inbox.put(message(f"k{n}")) for n in range(GROUP_MAX + 6)))
    tokens = [receipt.claim.token for receipt in receipts if receipt.claim]
    assert len(tokens) == GROUP_MAX + 6
    first, second = {*tokens[:GROUP_MAX]}, {*tokens[GROUP_MAX:]}
    assert (len(first), len(second), first & second) == (1, 1, set())


async def test_what_a_crash_left_is_taken_over_after_the_lease(db: Database) -> None:
    crashed = InboxWriter(db, LEASE)
    await crashed.put(message("left"))
    await crashed.put(message("done"))
    crashed.finish("done")
    await crashed.drain()
    assert await due(db, LEASE - timedelta(seconds=1)) == set()
    assert await due(db, LEASE) == {"left"}
    assert await due(db, LEASE) == set()


async def test_finished_rows_are_never_taken_over(db: Database, inbox: InboxWriter) -> None:
    for n in range(5):
        await inbox.put(message(f"k{n}"))
        inbox.finish(f"k{n}")
    await inbox.drain()
    assert await due(db, timedelta(days=9)) == set()


async def test_an_error_reaches_everybody_in_the_group_and_nobody_after_it(db: Database, inbox: InboxWriter) -> None:
    async with db.write() as tx:
        await tx.execute(text("ALTER TABLE inbox RENAME TO away"))
    gone = asyncio.create_task(inbox.put(message("gone")))
    await asyncio.sleep(0)
    gone.cancel()
    outcomes = await asyncio.gather(*(inbox.put(message(f"k{n}")) for n in range(3)), return_exceptions=True)
    assert all(isinstance(outcome, DBAPIError) for outcome in outcomes)
    assert gone.cancelled()
    async with db.write() as tx:
        await tx.execute(text("ALTER TABLE away RENAME TO inbox"))
        assert await tx.scalar(select(func.count()).select_from(Inbox)) == 0
    assert (await inbox.put(message("k1"))).claim is not None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"key": ""}, "1 to 128 characters; this one has 0"),
        ({"key": "k" * 129}, "1 to 128 characters; this one has 129"),
        ({"body": {"x": object()}}, "must be JSON"),
        ({"answer": {"x": {1, 2}}}, "must be JSON"),
    ],
)
def test_a_message_that_cannot_be_stored_fails_alone(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(message("k"), **values)


def test_a_body_nested_too_deep_fails_alone() -> None:
    body: dict[str, Any] = {}
    for _ in range(5000):
        body = {"x": body}
    with pytest.raises(ValueError, match="must be JSON"):
        message("k", deep=body)


async def test_a_message_goes_ahead_of_waiting_writers(sqlite_db: Database) -> None:
    inbox = InboxWriter(sqlite_db, LEASE)
    seen: list[int | None] = []

    async def write() -> None:
        async with sqlite_db.write() as tx:
            seen.append(await tx.scalar(select(func.count()).select_from(Inbox)))

    async with sqlite_db.write():
        writers = [asyncio.create_task(write()) for _ in range(5)]
        await asyncio.sleep(0)
        put = asyncio.create_task(inbox.put(message("k1")))
        for _ in range(5):  # Until the flush that it starts waits for its turn as well.
            await asyncio.sleep(0)
    await asyncio.gather(put, *writers)
    assert seen == [1] * 5


async def test_a_sender_that_gives_up_does_not_disturb_the_others(db: Database, inbox: InboxWriter) -> None:
    gone = asyncio.create_task(inbox.put(message("gone")))
    stays = asyncio.create_task(inbox.put(message("stays")))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await stays).claim is not None
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await due(db, LEASE) == {"gone", "stays"}


async def test_giving_up_on_a_drain_does_not_cancel_the_commit(db: Database, inbox: InboxWriter) -> None:
    put = asyncio.create_task(inbox.put(message("k1")))
    await asyncio.sleep(0)
    draining = asyncio.create_task(inbox.drain())
    await asyncio.sleep(0)
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert (await put).claim is not None


async def test_nobody_waits_for_ever_when_the_commit_is_cancelled(sqlite_db: Database) -> None:
    inbox = InboxWriter(sqlite_db, LEASE)
    async with sqlite_db.write():
        waiting = [asyncio.create_task(inbox.put(message(f"k{n}"))) for n in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        late = asyncio.create_task(inbox.put(message("late")))
        await asyncio.sleep(0)
        assert inbox._flusher is not None
        inbox._flusher.cancel()
        outcomes = await asyncio.gather(*waiting, late, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 4


async def test_two_replicas_that_get_the_same_messages_hold_each_once(db: Database, db_url: str) -> None:
    other_db = Database(db_url)
    one, two = InboxWriter(db, LEASE), InboxWriter(other_db, LEASE)
    keys = [f"k{n}" for n in range(30)]
    receipts = await asyncio.gather(
        *(one.put(message(key)) for key in keys), *(two.put(message(key)) for key in reversed(keys))
    )
    held = [r.claim.row_id for r in receipts if r.claim]
    assert sorted(held) == sorted(keys)
    assert all(r.answer == {"text": "taken"} for r in receipts)
    await other_db.close()


async def test_two_replicas_store_a_group_in_the_same_order(pg_db: Database) -> None:
    """One holds a, the other stores a and b: stored in another order, each would wait for the other."""
    inbox = InboxWriter(pg_db, LEASE)
    async with pg_db.write() as tx:
        tx.add(Inbox(key="a", kind="command", body={}, answer={}, state=InboxState.NEW, received_at=START))
        await tx.flush()
        storing = asyncio.ensure_future(asyncio.gather(inbox.put(message("a")), inbox.put(message("b"))))
        await somebody_waits(pg_db, storing)
        tx.add(Inbox(key="b", kind="command", body={}, answer={}, state=InboxState.NEW, received_at=START))
    assert [receipt.claim for receipt in await storing] == [None, None]


async def test_hostile_text_is_stored_and_not_refused(db: Database, inbox: InboxWriter) -> None:
    receipt = await inbox.put(
        message("k\x00", text="a\x00b\ud800c", nested=[{"\x00": "\x00"}], number=1.5, no=float("nan"), nothing=None)
    )
    assert receipt.claim is not None
    inbox.finish("k\x00")
    await inbox.drain()
    async with db.read() as tx:
        (row,) = await tx.scalars(select(Inbox))
    assert (row.key, row.state) == ("k\ufffd", InboxState.DONE)
    assert row.body == {
        "text": "a\ufffdb\ufffdc",
        "nested": [{"\ufffd": "\ufffd"}],
        "number": 1.5,
        "no": "nan",
        "nothing": None,
    }


@pytest.mark.parametrize("way", Way)
async def test_a_commit_whose_reply_is_lost_is_made_once_more_under_its_own_claim(
    pg_db_url: str, tmp_path: Path, way: Way
) -> None:
    async with commit_cuts(pg_db_url, tmp_path / "pg") as (url, cuts):
        behind = Database(url)
        inbox = InboxWriter(behind, LEASE)
        ways = [way]
        cuts.choose = lambda _wrote: ways.pop() if ways else None
        receipt = await inbox.put(message("k1", "first"))
        assert (receipt.answer, ways) == ({"text": "first"}, [])
        async with behind.read() as tx:
            (row,) = await tx.scalars(select(Inbox))
        assert receipt.claim is not None
        assert row.claim_token == receipt.claim.token
        inbox.finish("k1")
        ways.append(way)
        await inbox.drain()
        async with behind.read() as tx:
            assert (await tx.get_one(Inbox, "k1", populate_existing=True)).state is InboxState.DONE
        await behind.close()


@pytest.mark.parametrize("every", [1, 2, 3])
async def test_every_acknowledged_message_is_found_however_the_commits_are_cut(
    pg_db_url: str, tmp_path: Path, every: int
) -> None:
    """Cut each, each second or each third COMMIT in turn, in every way: what was answered as stored is stored.

    A group is made again on another connection, which may be cut too; only then nobody knows.
    """
    stored: set[str] = set()
    refused: dict[str, Exception] = {}
    commits = itertools.count(1)
    ways = itertools.cycle(Way)

    async def send(inbox: InboxWriter, key: str) -> None:
        try:
            await inbox.put(message(key))
        except Exception as error:  # noqa: BLE001 # Whatever it is, the sender was not told that it is stored.
            refused[key] = error
        else:
            stored.add(key)

    async with commit_cuts(pg_db_url, tmp_path / "pg") as (url, cuts):
        behind = Database(url)
        inbox = InboxWriter(behind, LEASE)
        cuts.choose = lambda _wrote: next(ways) if next(commits) % every == 0 else None
        for group in range(12):
            await asyncio.gather(*(send(inbox, f"{group}-{n}") for n in range(5)))
            for key in [key for key in stored if key.startswith(f"{group}-")]:
                inbox.finish(key)
            await asyncio.gather(inbox.drain(), send(inbox, f"{group}-last"))
        await inbox.drain()
        cuts.choose = lambda _wrote: None
        async with behind.read() as tx:
            keys = set((await tx.scalars(select(Inbox.key))).all())
        await behind.close()
    assert stored <= keys
    assert len(stored) + len(refused) == 72
    assert {type(error) for error in refused.values()} <= {StorageUnknown}
    # A backend that is terminated while it commits may have committed before.
    assert stored
    assert bool(refused) is (every == 1)
    assert {way for _, way in cuts.cut} == set(Way)


async def test_a_database_that_goes_away_twice_leaves_it_open_whether_a_message_is_stored(
    pg_db_url: str, tmp_path: Path
) -> None:
    async with commit_cuts(pg_db_url, tmp_path / "pg") as (url, cuts):
        behind = Database(url)
        inbox = InboxWriter(behind, LEASE)
        cuts.choose = lambda _wrote: Way.DROPPED
        with pytest.raises(StorageUnknown):
            await inbox.put(message("k1"))
        await behind.close()


@pytest.mark.parametrize("lost", [ConnectionResetError, TimeoutError])
async def test_a_group_is_stored_again_when_a_socket_breaks_at_its_commit(
    db: Database, inbox: InboxWriter, lost: type[OSError]
) -> None:
    """Such an error does not say whether the group is stored."""
    ways = [lost("the socket broke")]

    def broken(_: object) -> None:
        if ways:
            raise ways.pop()

    event.listen(db.writer.sync_engine, "commit", broken)
    try:
        receipt = await inbox.put(message("k1", "first"))
    finally:
        event.remove(db.writer.sync_engine, "commit", broken)
    assert (receipt.claim is not None, ways) == (True, [])
