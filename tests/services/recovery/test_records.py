"""What remembers the ledger's past: the epoch of each replica, a second folder, clouds and agents."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from bot.services.instances.unknown_outcome import SENT_BEFORE
from bot.services.runtime import ends_copy
from bot.services.runtime.epoch import NAME, load, restored_content
from bot.services.sessions.end_watchdog import EndWatchdog
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, NotificationKind
from tests.services.recovery.restoring import Copies, Service, lose_records, restarted
from tests.services.recovery.test_restores import extended
from tests.services.sessions.watchdog import OPERATORS


async def test_the_newest_of_two_replicas_counts_whoever_starts(
    running: Service, copies: Copies, tmp_path: Path
) -> None:
    """The second replica has a data folder of its own and wrote last; the shared folder has the entries of both."""
    shared, second = tmp_path / "other-disk", tmp_path / "second"
    shared.mkdir()
    second.mkdir()
    w = running.w
    await w.ask(candidates=("vast",))
    await running.run(15)
    url = w.ctx.db.url.render_as_string(hide_password=False)
    async with restarted(running, url, "one", [shared]) as one, restarted(one, url, "two", [shared], second) as two:
        await one.run(15)
        await two.dog.look()
        copy = await copies.take(*running.databases, *one.databases, *two.databases)
        await two.w.approved(candidates=("runpod",))
        await two.dog.look()
        assert {entry.replica for entry in load(shared)} >= {"one", "two"}
        assert "two" not in {entry.replica for entry in load(one.folder)}
    for folders, older in (((), False), ((shared,), True)):
        async with restarted(running, copy, "later", folders) as later:
            assert bool(await later.differences()) is older
    lost = tmp_path / "lost"
    lost.mkdir()
    async with restarted(running, copy, "elsewhere", [shared], lost) as later:
        assert (await later.differences())[0].startswith("The ledger is ")


@pytest.mark.parametrize("when", ["before the decision", "before the launch"])
async def test_while_the_epoch_can_not_be_written_a_launch_waits_and_an_end_comes(running: Service, when: str) -> None:
    w, folder = running.w, running.folder
    ends = await w.running(candidates=("runpod",), hours=Decimal(1))
    creates = len(w.engine.creates)
    away, closed = folder.with_name("away"), {InstanceState.REJECTED} if when == "before the launch" else set()
    if not closed:
        folder.rename(away)
    request_id = await w.approved(candidates=("vast",))
    if closed:
        folder.rename(away)
        await w.settle()
    await running.run(180, 15)
    assert len(w.engine.creates) == creates
    assert {row.state for row in (await w.view(request_id)).instances} == closed | {InstanceState.READY}
    assert [page for page in running.watched.pages if page.startswith("GPU Shopper cannot write its epoch")]
    assert (await w.end(ends)).ok
    await running.run(120, 15)
    assert w.alive() == []
    away.rename(folder)
    await running.run(60, 15)
    assert (len(w.engine.creates), len(w.alive())) == (creates + 1, 1)
    assert await w.violations() == []


async def test_a_decision_is_in_the_epoch_before_it_is_answered(running: Service) -> None:
    w = running.w
    request_id = await w.approved(candidates=("runpod",))
    events = [event.id for event in (await w.books()).events]
    (entry,) = load(running.folder)
    assert entry.events[-1].id in events[-3:]
    await running.run(45)
    (entry,) = load(running.folder)
    sent = [one for one in (await w.books()).events if one.kind == EventKind.INSTANCE_MOVED and one.after == "sending"]
    assert {one.subject for one in sent} == {row.id for row in (await w.view(request_id)).instances}


async def test_a_launch_that_a_cloud_lists_shows_that_the_ledger_is_older(running: Service, copies: Copies) -> None:
    w = running.w
    await w.approved(candidates=("runpod",))
    copy = await copies.take(*running.databases)
    await running.run(45)
    lose_records(running.folder)
    ends_copy.save(running.folder / ends_copy.NAME, ends_copy.EndsCopy(read_at=w.clock.now()))
    async with restarted(running, copy) as later:
        assert await later.differences() == []
        await later.run(30)
        assert (await later.differences())[0].startswith("The ledger is an older copy")
        pages = [one.body["text"] for one in (await later.w.books()).notifications if one.kind == PAGE]
        assert [text for text in pages if SENT_BEFORE in str(text)]
        assert (later.pages, len(w.engine.creates), len(w.alive())) == (["ledger/older"], 1, 1)
        assert (await later.accept()).ok
        await later.run(60)
        assert (len(w.engine.creates), len(w.alive())) == (1, 1)
        assert await later.violations() == []


async def test_a_restore_that_puts_a_whole_copy_in_place_asks_operators_first(running: Service, copies: Copies) -> None:
    """The epoch of the copy is restored with it, so nothing else shows that the ledger went back."""
    w = running.w
    await w.approved(candidates=("runpod",))
    copy = await copies.take(*running.databases)
    archived = running.folder / "archived"
    archived.mkdir()
    shutil.copy(running.folder / NAME, archived / NAME)
    await running.run(45)
    lose_records(running.folder)
    (running.folder / NAME).write_bytes(restored_content(running.folder, archived, w.clock.now()))
    async with restarted(running, copy) as later:
        assert (await later.differences())[0].startswith("The ledger was restored from a copy of 09:0")
        assert (await later.accept()).ok
    async with restarted(running, copy) as again:
        assert await again.differences() == []


@pytest.mark.slow
async def test_a_ledger_that_goes_back_under_a_running_process_is_noticed_in_the_next_look(
    running: Service, copies: Copies
) -> None:
    """A PostgreSQL server fails over to one that is behind, or somebody replaces the file."""
    w = running.w
    request_id = await w.approved(candidates=("runpod",))
    copy = await copies.take(*running.databases)
    await running.run(45)
    assert (await w.end(request_id)).ok
    await running.run(120, 15)
    creates = len(w.engine.creates)
    async with restarted(running, copy) as later:
        # The same process continues: its epoch is the one that wrote all that.
        later.w.ctx.epoch = later.dog.ctx.epoch = running.dog.ctx.epoch
        await later.dog.look()
        await later.dog.probe()
        assert (await later.differences())[0].startswith("The ledger is ")
        await later.run(60)
        assert (await later.accept()).ok
        await later.run(60)
        assert (await later.differences(), len(w.engine.creates)) == ([], creates)


PAGE = NotificationKind.OPERATOR_PAGE


async def test_a_program_of_another_schema_ends_nothing_that_another_host_has_extended(
    running: Service, copies: Copies, tmp_path: Path
) -> None:
    """This host stopped, the other one works on, and this one starts again with a program of before."""
    w, other = running.w, tmp_path / "host-b"
    other.mkdir(mode=0o700)
    request_id = await w.running(candidates=("runpod",), hours=Decimal(1))
    await running.dog.look()
    url = w.ctx.db.url.render_as_string(hide_password=False)
    w.clock.advance(120)
    async with restarted(running, url, "host-b", folder=other) as there:
        await there.run(15)
        await extended(there, request_id, "2")
        w.clock.advance(3600 + 600)
        await there.run(30)
        assert len(w.alive()) == 1
        watched = running.watched
        again = EndWatchdog(
            running.dog.ctx, running.folder / ends_copy.NAME, "again", watched.say, watched.others, OPERATORS,
            refused="the ledger has another schema",
        )  # fmt: skip
        assert await again.look() == 0
        assert len(w.alive()) == 1
        assert ["before the second page" in page for page in watched.pages] == [True]
