"""The epoch on disk: what is written before a spend, by whom, and what counts no more."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from bot.rules.instances.ledger_age import AcceptedRecords, EpochEntry, NamedEvent
from bot.services.runtime import epoch as epoch_module
from bot.services.runtime.epoch import LOCK, NAME, NO_ANSWER, Epoch, load, restored_content
from bot.services.runtime.event_content import named_event
from ledger.core import record
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.queries.recovery.age import journal_age
from tests.support.clock import START

EVENT = NamedEvent("evt_1", "aa")
SECOND = timedelta(seconds=1)


@dataclass
class Counting(Epoch):
    """An epoch that counts its writes."""

    writes: int = 0

    def save(self) -> bool:
        self.writes += 1
        return super().save()


async def covered(db: Database, epoch: Epoch, text: str = "") -> bool:
    """Write one event, and cover it."""
    async with db.write() as tx:
        record(tx, START, SYSTEM, "ses_1", EventKind.SESSION_KEPT, reason=text, data={"a": [1, "ä\ud800"]})
    return await epoch.cover(tx)


@pytest.mark.both_databases
async def test_an_event_has_one_hash_before_its_commit_and_as_it_is_stored(db: Database, tmp_path: Path) -> None:
    epoch = Epoch((tmp_path,), "one")
    assert await covered(db, epoch, "a text with \x00 in it")
    ((event,),) = (entry.events for entry in load(tmp_path))
    async with db.read() as tx:
        age = await journal_age(tx, [event.id, "evt_none"])
    assert (age.events, named_event(age.by_id[event.id]), set(age.by_id)) == (1, event, {event.id})
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


async def test_those_that_wait_share_a_write(db: Database, tmp_path: Path) -> None:
    epoch = Counting((tmp_path,), "one")
    assert await asyncio.gather(*(covered(db, epoch) for _ in range(12))) == [True] * 12
    assert epoch.writes < 12
    assert len(load(tmp_path)[0].events) == 12


async def test_without_a_folder_or_an_event_nothing_waits(db: Database, tmp_path: Path) -> None:
    assert await covered(db, Epoch())
    async with db.write() as tx:
        pass
    assert await Epoch((tmp_path / "none",), "one").cover(tx)


async def test_every_folder_must_be_written(db: Database, tmp_path: Path) -> None:
    other = tmp_path / "other"
    epoch = Epoch((tmp_path, other), "one")
    assert not await covered(db, epoch)
    assert epoch.problem == "No such file or directory"
    assert not await epoch.works()
    other.mkdir()
    assert await epoch.works()
    assert load(other) == load(tmp_path) != ()


def test_replicas_of_one_folder_keep_their_entries(tmp_path: Path) -> None:
    one, two = Epoch((tmp_path,), "one"), Epoch((tmp_path,), "two")
    one.note(7, EVENT, START)
    two.note(9, NamedEvent("evt_2", "bb"), START)
    assert one.save()
    assert two.save()
    one.note(8, None, START + SECOND)
    assert one.save()
    assert {(entry.replica, entry.position) for entry in load(tmp_path)} == {("one", 8), ("two", 9)}
    # The next process has read an older entry of one that still runs: the newer one stays.
    three = Epoch((tmp_path,), "three")
    two.note(12, None, START + 2 * SECOND)
    assert two.save()
    three.note(12, None, START + 2 * SECOND)
    assert three.save()
    assert {entry.replica: entry.position for entry in load(tmp_path)} == {"one": 8, "two": 12, "three": 12}
    three.confirm(three.entries())
    assert three.save()
    assert {entry.replica for entry in load(tmp_path)} == {"two", "three"}


def test_what_was_accepted_counts_no_more(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(restored_content(tmp_path, tmp_path / "archive", START))
    epoch = Epoch((tmp_path,), "one")
    epoch.note(5, EVENT, START + SECOND)
    assert [entry.is_restored for entry in epoch.entries()] == [True, False]
    epoch.set_aside()
    epoch.note(2, NamedEvent("evt_2", "bb"), START + 3 * SECOND)
    assert [entry.position for entry in epoch.entries()] == [0, 5, 2]
    epoch.accept(
        AcceptedRecords(START + 2 * SECOND, {"restore": START, f"one-{int(START.timestamp()) + 1}": START + SECOND})
    )
    assert epoch.save()
    assert [(entry.replica, entry.position) for entry in load(tmp_path)] == [("one", 2)]
    epoch.accept(AcceptedRecords(START + 9 * SECOND, {"two": START}))
    assert epoch.entries() == (EpochEntry("one", 0, epoch.entries()[0].at),)


def test_a_file_that_can_not_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    assert Epoch((tmp_path,), "one").before == ()


def test_another_process_that_keeps_the_file_is_waited_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_module, "LOCK_S", 0.05)
    epoch = Epoch((tmp_path,), "one")
    epoch.note(5, EVENT, START)
    with (tmp_path / LOCK).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not epoch.save()
    assert epoch.save()


@dataclass
class HungDisk:
    """A folder whose epoch nobody can read until the disk answers: whoever opens the file waits."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        os.mkfifo(self.folder / "hung")
        file = self.folder / NAME
        self._content = file.read_bytes() if file.exists() else b""
        file.unlink(missing_ok=True)
        file.symlink_to(self.folder / "hung")

    def answer(self) -> None:
        """Let those that wait read what the file had, and the others find it."""
        draft = self.folder / "draft"
        draft.write_bytes(self._content)
        draft.replace(self.folder / NAME)
        (self.folder / "hung").write_bytes(self._content)


async def test_a_disk_that_does_not_answer_is_a_failed_write_until_its_entries_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    before = Epoch((other,), "before")
    before.note(7, EVENT, START)
    assert before.save()
    monkeypatch.setattr(epoch_module, "WRITE_S", 0.1)
    disk = HungDisk(other)
    epoch = Epoch((here, other), "now")
    try:
        assert (epoch.problem, epoch.before) == (NO_ANSWER, ())
        epoch.note(1, EVENT, START + SECOND)
        assert not await epoch.works()
        assert [entry.replica for entry in load(here)] == ["now"]
    finally:
        disk.answer()
    async with asyncio.timeout(10):
        while not await epoch.works():  # noqa: ASYNC110 # A disk tells nobody.
            await asyncio.sleep(0.01)
    assert [entry.replica for entry in epoch.entries()] == ["before", "now"]
    assert {entry.replica for entry in load(other)} == {"before", "now"}


async def test_a_disk_that_hangs_later_is_waited_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_module, "WRITE_S", 0.1)
    epoch = Epoch((tmp_path,), "now")
    epoch.note(1, EVENT, START)
    assert await epoch.write()
    disk = HungDisk(tmp_path)
    try:
        assert not await epoch.write()
        assert not await epoch.works()
        assert epoch.problem
    finally:
        disk.answer()
    async with asyncio.timeout(10):
        while not await epoch.works():  # noqa: ASYNC110 # A disk tells nobody.
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=1)])
async def test_the_record_of_an_empty_ledger_hides_no_event(db: Database, tmp_path: Path, ahead: timedelta) -> None:
    """The first start has a clock that is ahead. Then clouds correct it, and something is bought."""
    epoch = Epoch((tmp_path,), "one")
    epoch.note(0, None, START + ahead)
    assert await epoch.write()
    epoch.note(0, None, START)
    assert await covered(db, epoch)
    assert any(entry.events for entry in load(tmp_path))
