"""Back up a deployment into one archive, beside a service that runs or without one."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from bot.services.backups import archive, journal_check, key_box
from bot.services.backups.archive import BackupManifest
from bot.services.backups.installation import RECORDS, BackupRefused, Installation, LedgerServer
from bot.services.backups.journal_check import JournalFacts
from ledger.engine.copied_journal import CopiedJournal, NoJournal
from ledger.engine.postgres_copy import dump_ledger, read_journal
from ledger.engine.sqlite_copy import copy_ledger, flush_folder

#: Folders of backups that are under way, inside the folder of the archives.
PREFIX = ".gpu-shopper-backup-"
#: A SQLite file with the journal of a PostgreSQL dump, which is no part of the archive.
JOURNAL = "journal.db"


@dataclass(frozen=True, slots=True)
class Backup:
    """An archive that was written. `broken` is what does not match in its journal."""

    path: Path
    manifest: BackupManifest
    broken: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Ledger:
    """A copy of the ledger, what its journal says, and the version of its server (0 for SQLite)."""

    file: Path
    facts: JournalFacts
    major: int = 0


async def back_up(place: Installation, target: Path, passphrase: str | None, now: datetime, program: str) -> Backup:
    """Write an archive of the deployment into the folder `target`; without a passphrase it has no label key.

    The archive gets its name once it is whole and on disk. Raises `BackupRefused`, and `ClientProblem` of PostgreSQL.
    """
    if place.deployment is None:
        raise BackupRefused(f"There is no deployment in {place.folder} yet, so there is nothing to back up.")
    if place.key_hex is None and passphrase is not None:
        raise BackupRefused(f"There is no label key in {place.folder}. Add --without-key to leave it out.")
    # One manifest but for the members and what the ledger's copy says of itself.
    manifest = BackupManifest(now, program, place.deployment, "", 0, "")
    return await asyncio.to_thread(_write, place, target, passphrase, manifest, await place.server())


def _write(
    place: Installation, target: Path, passphrase: str | None, manifest: BackupManifest, server: LedgerServer | None
) -> Backup:
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = target / f"gpu-shopper-{manifest.deployment}-{manifest.made_at:%Y%m%dT%H%M%SZ}.tar"
    with archive.staging(target, PREFIX) as folder:
        copied = _sqlite(place.ledger, folder) if place.ledger is not None else _postgres(server, folder)
        files = {copied.file.name: copied.file, **_small_files(place, folder, passphrase)}
        facts = copied.facts
        members = {name: archive.hashed(file) for name, file in files.items()}
        manifest = replace(
            manifest,
            revision=facts.revision,
            readable_from=facts.readable_from,
            position=facts.newest.position,
            head=facts.newest.hash,
            major=copied.major,
            members=members,
        )
        if path.exists():
            raise BackupRefused(f"{path} is there already.")
        whole = folder / "archive.tar"
        archive.write_archive(whole, manifest, files, folder)
        whole.replace(path)
        flush_folder(target)
    return Backup(path, manifest, facts.broken)


def _sqlite(ledger: Path, folder: Path) -> _Ledger:
    if not ledger.exists():
        raise BackupRefused(f"{ledger} is not there yet, so there is nothing to back up.")
    copy = folder / archive.SQLITE_LEDGER
    copy_ledger(ledger, copy)
    return _Ledger(copy, read_facts(copy))


def _postgres(server: LedgerServer | None, folder: Path) -> _Ledger:
    if server is None or not server.state.has_tables:
        raise BackupRefused("There is no ledger in this database yet, so there is nothing to back up.")
    dump, journal, major = folder / archive.POSTGRES_LEDGER, folder / JOURNAL, server.state.major
    dump_ledger(server.url, dump, major)
    read_journal(dump, journal, major)
    return _Ledger(dump, read_facts(journal), major)


def read_facts(journal: Path) -> JournalFacts:
    """Read and verify the journal of a copy. Raises `BackupRefused` where there is none."""
    try:
        with CopiedJournal(journal) as opened:
            return journal_check.read(opened)
    except NoJournal as error:
        raise BackupRefused(f"This is no ledger that this version can read: it has {error}.") from error


def _small_files(place: Installation, folder: Path, passphrase: str | None) -> Mapping[str, Path]:
    """Write the small members: the records after the ledger, so that they know at least as much as it does."""
    deployment = place.deployment or ""
    (folder / archive.DEPLOYMENT).write_text(deployment, encoding="ascii")
    files = {archive.DEPLOYMENT: folder / archive.DEPLOYMENT}
    if passphrase is not None and place.key_hex is not None:
        (folder / archive.KEY).write_bytes(key_box.encrypted(place.key_hex, passphrase, deployment))
        files[archive.KEY] = folder / archive.KEY
    sources = {name: place.folder / file for name, file in RECORDS.items()}
    if place.policy is not None:
        sources[archive.POLICY] = place.policy
    for name, source in sources.items():
        if source.is_file():  # A service may replace it meanwhile, so its content is read once.
            shutil.copyfile(source, folder / name)
            files[name] = folder / name
    return files
