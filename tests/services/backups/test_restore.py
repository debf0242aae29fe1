"""A backup comes back whole on both databases, and is refused with a sentence where it would not."""

from __future__ import annotations

import json
import random
import stat
import tarfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from bot.rules.instances.ledger_age import EpochEntry
from bot.services.backups.archive import MANIFEST, BadArchive, read_manifest
from bot.services.backups.backup import PREFIX, Backup, back_up
from bot.services.backups.installation import BackupRefused, Installation
from bot.services.backups.restore import check, restore
from bot.services.runtime import ends_copy
from bot.services.runtime.ends_copy import EndsCopy
from bot.services.runtime.epoch import load
from bot.services.runtime.serve_lock import serve_lock
from ledger.engine.db import Database
from ledger.engine.postgres_copy import ClientProblem
from migrations import run as schema
from tests.services.backups.deployments import KEY, PASSPHRASE, contents, contents_of_file, go_on, installation, rent
from tests.support.clock import START, SteppedClock
from tests.support.databases import copy_sqlite

LATER = START + timedelta(hours=3)


def leftovers(folder: Path, mark: str) -> list[str]:
    """The names in a folder with this in them."""
    return [path.name for path in folder.iterdir() if mark in path.name]


async def backed_up(
    place: Installation, target: Path, now: datetime = START, passphrase: str | None = PASSPHRASE
) -> Backup:
    """A backup whose journal is whole."""
    made = await back_up(place, target, passphrase, now, "0.1.0")
    assert made.broken == ()
    return made


async def test_a_backup_comes_back_and_the_ledger_before_it_stays_beside(
    url: str, folder: Path, tmp_path: Path, clock: SteppedClock
) -> None:
    place = installation(url, folder)
    (folder / "policy.yml").write_text("policy: {}")
    ends_copy.save(folder / "ends.json", EndsCopy(START))
    then = await rent(url, clock)
    made = await backed_up(place, tmp_path / "safe")
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert [one.name for one in (tmp_path / "safe").iterdir()] == [made.path.name]
    assert made.manifest.position == then.events
    later = await go_on(url, clock)
    assert later.events > then.events
    done = await restore(place, made.path, PASSPHRASE, LATER)
    assert await contents(url) == then
    assert done.notes == ()
    if place.ledger is not None:
        assert contents_of_file(Path(done.aside)) == later
        assert stat.S_IMODE(place.ledger.stat().st_mode) == 0o600
    else:
        db = Database(url)
        async with db.read() as tx:
            name = done.aside.removeprefix("the schema ")
            assert await tx.scalar(text(f"SELECT count(*) FROM {name}.events")) == later.events  # noqa: S608 # Our own.
        await schema.check(db)
        await db.close()
    assert leftovers(folder, ".gpu") == []
    await go_on(url, clock)  # The service works on it as before, with every trigger.
    again = await backed_up(place, tmp_path / "safe", LATER)
    assert again.manifest.position == then.events + 1


async def test_it_comes_back_into_an_empty_folder_with_its_key_and_its_records(
    url: str, folder: Path, tmp_path: Path, clock: SteppedClock
) -> None:
    place = installation(url, folder)
    (folder / "policy.yml").write_text("policy: {}")
    ends_copy.save(folder / "ends.json", EndsCopy(START))
    entry = {"replica": "a", "position": 7, "at": START.isoformat(), "events": [], "is_restored": False}
    (folder / "epoch.json").write_text(json.dumps({"entries": [entry]}))
    then = await rent(url, clock)
    made = await backed_up(place, tmp_path / "safe")
    new = tmp_path / "new"
    new.mkdir(mode=0o700)
    there = installation(url, new, deployment=None, key_hex=None)
    if place.ledger is not None:
        there = installation(f"sqlite+aiosqlite:///{new / 'ledger.db'}", new, deployment=None, key_hex=None)
    done = await restore(there, made.path, PASSPHRASE, LATER)
    assert await contents(there.url) == then
    assert (done.aside == "") is (place.ledger is not None)
    assert ((new / "label.key").read_text(), (new / "deployment.id").read_text()) == (KEY, "tst1")
    assert (new / "policy.yml").read_text() == "policy: {}"
    assert ends_copy.load(new / "ends.json").read_at == START
    assert load(new) == (EpochEntry("a", 7, START), EpochEntry("restore", 0, START, is_restored=True))
    for file in new.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


async def test_records_that_are_here_and_newer_stay(
    url: str, folder: Path, tmp_path: Path, clock: SteppedClock
) -> None:
    place = installation(url, folder)
    (folder / "policy.yml").write_text("policy: {}")
    ends_copy.save(folder / "ends.json", EndsCopy(START))
    old = {"replica": "a", "position": 7, "at": START.isoformat()}
    (folder / "epoch.json").write_text(json.dumps({"entries": [old, {**old, "replica": "b"}]}))
    made = await backed_up(place, tmp_path / "safe")
    ends_copy.save(folder / "ends.json", EndsCopy(LATER))
    (folder / "policy.yml").write_text("policy: {max_hours: 8}")
    new = {"replica": "a", "position": 9, "at": LATER.isoformat()}
    (folder / "epoch.json").write_text(json.dumps({"entries": [new]}))
    done = await restore(place, made.path, PASSPHRASE, LATER)
    assert ends_copy.load(folder / "ends.json").read_at == LATER
    assert (folder / "policy.yml").read_text() == "policy: {max_hours: 8}"
    assert done.notes == (f"{folder / 'policy.yml'} stays as it is. The archive has another policy.",)
    entries = json.loads((folder / "epoch.json").read_text())["entries"]
    assert [(one["replica"], one["position"]) for one in entries] == [("a", 9), ("b", 7), ("restore", 0)]
    assert leftovers(folder, ".restored") == []


async def test_a_ledger_in_use_stays_and_so_does_its_epoch(
    url: str, folder: Path, tmp_path: Path, clock: SteppedClock
) -> None:
    place = installation(url, folder)
    made = await backed_up(place, tmp_path / "safe")
    then = await contents(url)
    db = Database(url)
    async with db.read() as tx:
        await tx.scalar(text("SELECT 1"))
        with pytest.raises(BackupRefused, match="Stop"):
            await restore(place, made.path, PASSPHRASE, LATER)
    await db.close()
    if place.ledger is not None:
        with (
            serve_lock(place.ledger),
            pytest.raises(BackupRefused, match=r"A service works on this ledger \(process \d+\)"),
        ):
            await restore(place, made.path, PASSPHRASE, LATER)
    assert not (folder / "epoch.json").exists()
    assert await contents(url) == then
    assert leftovers(folder, "before-restore") == []


async def test_a_restore_that_fails_after_the_swap_leaves_its_mark(
    folder: Path, tmp_path: Path, clock: SteppedClock, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the new ledger is there is in doubt then; a mark for nothing costs one `recover --accept`."""
    here = copy_sqlite(sqlite_template, tmp_path)
    await rent(here, clock)
    made = await backed_up(installation(here, tmp_path), tmp_path / "safe")

    def failing(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("ledger.engine.sqlite_copy.flush_folder", failing)
    url = f"sqlite+aiosqlite:///{folder / 'ledger.db'}"
    with pytest.raises(OSError, match="Input/output error"):
        await restore(installation(url, folder, deployment=None, key_hex=None), made.path, PASSPHRASE, LATER)
    assert (folder / "ledger.db").exists()
    assert [entry.is_restored for entry in load(folder)] == [True]


async def test_what_would_not_come_back_is_refused_with_the_reason(
    url: str, folder: Path, tmp_path: Path, clock: SteppedClock
) -> None:
    place = installation(url, folder)
    await rent(url, clock)
    made = await backed_up(place, tmp_path / "safe")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    checked = check(made.path, scratch, PASSPHRASE)
    assert (checked.key_hex, checked.manifest) == (KEY, made.manifest)
    assert check(made.path, scratch, None).key_hex is None
    with pytest.raises(BackupRefused, match="The passphrase does not open the label key"):
        check(made.path, scratch, "another passphrase")
    for other, reason in (
        (installation(url, folder, deployment="tst2"), "The archive is of deployment tst1"),
        (installation(url, folder, key_hex="cd" * 32), "The archive has another label key"),
    ):
        with pytest.raises(BackupRefused, match=reason):
            await restore(other, made.path, PASSPHRASE, LATER)
    with pytest.raises(BackupRefused, match="Give its passphrase, or add --without-key"):
        await restore(place, made.path, None, LATER)
    bare = await backed_up(place, tmp_path / "bare", passphrase=None)
    for without_key, passphrase, path in ((False, None, bare.path), (True, None, made.path)):
        with pytest.raises(BackupRefused, match=r"Put label\.key into"):
            await restore(installation(url, folder, key_hex=None), path, passphrase, LATER, without_key=without_key)
    await restore(place, bare.path, None, LATER)
    await restore(place, made.path, None, LATER + timedelta(seconds=1), without_key=True)
    assert list(scratch.iterdir()) == []


async def test_every_damaged_byte_that_matters_is_noticed(
    url: str, folder: Path, tmp_path: Path, clock: SteppedClock
) -> None:
    await rent(url, clock)
    made = await backed_up(installation(url, folder), tmp_path / "safe")
    good, draw = made.path.read_bytes(), random.Random(7)
    with tarfile.open(made.path) as archive:
        spans = [(one.offset_data, one.offset_data + one.size) for one in archive]
    bad, scratch = tmp_path / "bad.tar", tmp_path / "scratch"
    scratch.mkdir()
    for begin, end in spans:
        for place in {begin, end - 1, *(draw.randrange(begin, end) for _ in range(3))}:
            bad.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            with pytest.raises(BackupRefused, match=r"bad\.tar can't be restored"):
                check(bad, scratch, PASSPHRASE)
    for cut in (0, 100, len(good) // 2, spans[-1][1] - 1):
        bad.write_bytes(good[:cut])
        with pytest.raises(BackupRefused, match=r"bad\.tar can't be restored"):
            check(bad, scratch, PASSPHRASE)
    assert list(scratch.iterdir()) == []


async def test_an_archive_of_an_older_schema_comes_back_and_is_upgraded_and_one_of_a_newer_is_refused(
    url: str, folder: Path, tmp_path: Path, clock: SteppedClock
) -> None:
    place = installation(url, folder)
    then = await rent(url, clock)
    db = Database(url)
    await schema.downgrade(db, "-1")
    older = await schema.current(db)
    await db.close()
    made = await backed_up(place, tmp_path / "safe")
    assert made.manifest.revision == older
    await schema.upgrade(db)
    await db.close()
    await restore(place, made.path, PASSPHRASE, LATER)
    assert await schema.current(db) == older
    await schema.upgrade(db)
    async with db.write() as tx:
        await tx.execute(text("UPDATE alembic_version SET version_num = '9999', readable_from = '9000'"))
    await db.close()
    assert await contents(url) == then
    newer = await backed_up(place, tmp_path / "safe", LATER)
    with pytest.raises(BackupRefused, match="at revision 9999, and this program knows revisions up to"):
        await restore(place, newer.path, PASSPHRASE, LATER)
    async with db.write() as tx:
        await tx.execute(text("UPDATE alembic_version SET readable_from = :oldest"), {"oldest": schema.newest()})
    await db.close()
    usable = await backed_up(place, tmp_path / "safe", LATER + timedelta(seconds=1))
    await restore(place, usable.path, PASSPHRASE, LATER + timedelta(seconds=2))
    await schema.require_newest(db)
    await db.close()


async def test_a_changed_journal_is_backed_up_with_its_fault_and_not_restored(
    url: str, folder: Path, tmp_path: Path, clock: SteppedClock
) -> None:
    place = installation(url, folder)
    await rent(url, clock)
    db = Database(url)
    async with db.write() as tx:
        await tx.execute(text("UPDATE event_hashes SET hash = 'x' WHERE number = 2"))
    await db.close()
    made = await back_up(place, tmp_path / "safe", PASSPHRASE, START, "0.1.0")
    assert "event 2 of" in made.broken[0]
    with pytest.raises(BackupRefused, match="its journal was changed: event 2 of"):
        await restore(place, made.path, PASSPHRASE, LATER)


async def test_what_a_killed_backup_left_is_removed_and_one_that_runs_is_not(
    url: str, folder: Path, tmp_path: Path
) -> None:
    place, safe = installation(url, folder), tmp_path / "safe"
    for name in ("left", "runs"):
        (safe / f"{PREFIX}{name}").mkdir(parents=True)
    with serve_lock(safe / f"{PREFIX}runs" / "x"):  # Any lock on the file of that name does.
        (safe / f"{PREFIX}runs" / "x.lock").replace(safe / f"{PREFIX}runs" / "lock")
        made = await backed_up(place, safe)
    assert {one.name for one in safe.iterdir()} == {made.path.name, f"{PREFIX}runs"}
    with pytest.raises(BackupRefused, match="is there already"):
        await backed_up(place, safe)


async def test_nothing_is_backed_up_where_nothing_is(url: str, folder: Path, tmp_path: Path) -> None:
    for place, reason in (
        (installation(url, folder, deployment=None), "There is no deployment"),
        (installation(url, folder, key_hex=None), "There is no label key"),
    ):
        with pytest.raises(BackupRefused, match=reason):
            await backed_up(place, tmp_path / "safe")
    if url.startswith("sqlite"):
        other = installation(f"sqlite+aiosqlite:///{folder / 'none.db'}", folder)
        with pytest.raises(BackupRefused, match="is not there yet"):
            await backed_up(other, tmp_path / "safe")


async def test_an_archive_of_the_other_database_is_refused(
    url: str, folder: Path, tmp_path: Path, sqlite_template: Path
) -> None:
    made = await backed_up(installation(url, folder), tmp_path / "safe")
    manifest = read_manifest(made.path)
    assert (manifest.major > 0) is url.startswith("postgresql")
    if manifest.major:
        other = installation(f"sqlite+aiosqlite:///{folder / 'other.db'}", folder)
        with pytest.raises(BackupRefused, match="on PostgreSQL, and this installation uses SQLite"):
            await restore(other, made.path, PASSPHRASE, LATER)


def test_an_archive_of_a_newer_program_or_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(__file__, MANIFEST)
    with pytest.raises(BadArchive, match="no archive of GPU Shopper"):
        read_manifest(path)


async def test_a_missing_or_older_pg_dump_is_named_with_what_to_install(
    url: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if url.startswith("sqlite"):
        return
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(
        ClientProblem, match=r"^pg_dump is not on PATH\. Install PostgreSQL's client programs, version \d+"
    ):
        await backed_up(installation(url, folder), tmp_path / "safe")
    old = programs / "pg_dump"
    old.write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 12.3'\n")
    old.chmod(0o755)
    with pytest.raises(ClientProblem, match=r"is version 12, and version \d+ or newer is needed"):
        await backed_up(installation(url, folder), tmp_path / "safe")
