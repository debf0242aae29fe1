"""Check an archive, and put its ledger and files in the place of a deployment that does not run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bot.rules.values.phrases import plural
from bot.services.backups import archive, files, key_box
from bot.services.backups.archive import BackupManifest, BadArchive
from bot.services.backups.backup import JOURNAL, read_facts
from bot.services.backups.installation import RECORDS, BackupRefused, Installation, LedgerServer
from bot.services.backups.key_box import WrongPassphrase
from bot.services.runtime.serve_lock import AlreadyServed, serve_lock
from ledger.engine.postgres_copy import ASIDE, read_journal
from ledger.engine.postgres_copy import put_in_place as put_dump_in_place
from ledger.engine.sqlite_copy import LedgerInUse, NotALedger, put_in_place, refuse_damaged
from migrations import run as schema

#: Folders of restores that are under way, inside the data folder.
PREFIX = ".gpu-shopper-restore-"


@dataclass(frozen=True, slots=True)
class CheckedArchive:
    """An archive that would come back. `key_hex` is None where it has no key, or nobody gave its passphrase."""

    manifest: BackupManifest
    key_hex: str | None


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did: the archive, where the replaced ledger is now ("" where there was none), and what stayed."""

    manifest: BackupManifest
    aside: str
    notes: tuple[str, ...]


def check(path: Path, scratch: Path, passphrase: str | None) -> CheckedArchive:
    """Return what an archive is when it would come back. Raises `BackupRefused` with the reason when it would not.

    `scratch` is where it is unpacked and removed again.
    """
    with archive.staging(scratch, PREFIX) as folder:
        return _checked(path, folder, passphrase)


async def restore(
    place: Installation, path: Path, passphrase: str | None, now: datetime, *, without_key: bool = False
) -> Restored:
    """Put an archive's ledger in the place of the present one, which stays beside it, and its files where none are.

    Everything is checked first. A kill at any moment leaves the whole old ledger, or the whole new one. Raises
    `BackupRefused`, and `ClientProblem` of PostgreSQL.
    """
    return await asyncio.to_thread(_restore, place, path, passphrase, now, await place.server(), without_key)


def _restore(
    place: Installation,
    path: Path,
    passphrase: str | None,
    now: datetime,
    server: LedgerServer | None,
    without_key: bool,
) -> Restored:
    with _alone(place), archive.staging(place.folder, PREFIX) as folder:
        checked = _checked(path, folder, passphrase)
        manifest = checked.manifest
        _refuse_other_kind(place, manifest)
        _refuse_other_deployment(place, checked, without_key=without_key)
        if server is not None and server.state.connected:
            open_ones = plural(server.state.connected, "connection")
            raise BackupRefused(f"This ledger is in use: it has {open_ones}. Stop every replica, then restore.")
        with files.put_back_on_failure(place.folder / RECORDS[archive.EPOCH]) as swap:
            notes = files.put_files(place, manifest, checked.key_hex, folder)
            begin = swap.begin
            aside = _put_ledger(place, folder / manifest.ledger, manifest, server, f"{now:%Y%m%dT%H%M%SZ}", begin)
    return Restored(manifest, aside, notes)


def _checked(path: Path, folder: Path, passphrase: str | None) -> CheckedArchive:
    """Unpack an archive into a folder and check all that can be checked without the deployment."""
    try:
        manifest = archive.unpack(path, folder)
        journal = copy = folder / manifest.ledger
        _refuse_schema(manifest)
        if manifest.major:
            journal = folder / JOURNAL
            read_journal(copy, journal, manifest.major)
        else:
            refuse_damaged(copy)
    except (BadArchive, NotALedger) as error:
        raise BackupRefused(f"{path.name} can't be restored: {error}.") from error
    facts = read_facts(journal)
    if facts.broken:
        raise BackupRefused(f"{path.name} can't be restored, because its journal was changed: {facts.broken[0]}.")
    if (facts.revision, *facts.newest) != (manifest.revision, manifest.position, manifest.head):
        raise BackupRefused(f"{path.name} can't be restored: its manifest is of another ledger.")
    sealed = folder / archive.KEY
    if not sealed.exists() or passphrase is None:
        return CheckedArchive(manifest, None)
    try:
        return CheckedArchive(manifest, key_box.decrypted(sealed.read_bytes(), passphrase, manifest.deployment))
    except WrongPassphrase as error:
        raise BackupRefused(f"The passphrase does not open the label key in {path.name}.") from error


def _refuse_schema(manifest: BackupManifest) -> None:
    there = schema.SchemaState(manifest.revision, manifest.readable_from)
    if schema.refusal(*there) is not None and not schema.is_usable(there):
        raise BackupRefused(
            f"The archive's ledger is at revision {manifest.revision}, and this program knows revisions up to "
            f"{schema.newest()}. Restore it with GPU Shopper {manifest.program} or newer."
        )


def _refuse_other_kind(place: Installation, manifest: BackupManifest) -> None:
    if (place.ledger is None) is not bool(manifest.major):
        here, there = ("PostgreSQL", "SQLite") if place.ledger is None else ("SQLite", "PostgreSQL")
        raise BackupRefused(
            f"The archive's ledger is on {there}, and this installation uses {here}. Set GPU_SHOPPER_DATABASE_URL."
        )


def _refuse_other_deployment(place: Installation, checked: CheckedArchive, *, without_key: bool) -> None:
    """Refuse an archive of another deployment, and one after which nobody could prove which instances are ours."""
    manifest, has_key = checked.manifest, archive.KEY in checked.manifest.members
    if place.deployment not in (None, manifest.deployment):
        raise BackupRefused(
            f"The archive is of deployment {manifest.deployment}, and {place.folder} belongs to {place.deployment}. "
            "Restore it into an empty data folder."
        )
    if has_key and checked.key_hex is None and not without_key:
        raise BackupRefused("The archive has a label key. Give its passphrase, or add --without-key.")
    if checked.key_hex is None and place.key_hex is None:
        raise BackupRefused(
            f"Without its label key GPU Shopper can't tell its instances from others. Put label.key into {place.folder}"
            + (", or give the passphrase." if has_key else " first.")
        )
    if None not in (checked.key_hex, place.key_hex) and checked.key_hex != place.key_hex:
        raise BackupRefused(
            f"The archive has another label key than {place.folder}. Restore into an empty data folder."
        )


@contextmanager
def _alone(place: Installation) -> Iterator[None]:
    """Keep `serve` from starting on this SQLite file meanwhile. Raises `BackupRefused` while one runs."""
    try:
        with serve_lock(place.ledger):
            yield
    except AlreadyServed as error:
        raise BackupRefused(f"A service works on this ledger (process {error}). Stop it, then restore.") from error


def _put_ledger(
    place: Installation,
    copy: Path,
    manifest: BackupManifest,
    server: LedgerServer | None,
    stamp: str,
    begin: Callable[[], None],
) -> str:
    """Put the copy in the ledger's place; return where the replaced one is, "" where there was none.

    `begin` is called right before the step after which the copy may be there.
    """
    if server is not None:
        schema_aside = f"{ASIDE}{stamp}".lower() if server.state.has_tables else None
        put_dump_in_place(server.url, copy, schema_aside, max(server.state.major, manifest.major), begin)
        return f"the schema {schema_aside}" if schema_aside else ""
    ledger = place.ledger or copy
    files.own(copy, ledger.parent)
    aside = Path(f"{ledger}.before-restore-{stamp}")
    try:
        return str(aside) if put_in_place(copy, ledger, aside, begin) else ""
    except LedgerInUse as error:
        raise BackupRefused(f"Another program has {ledger} open. Stop it, then restore.") from error
