"""Write and read the archive of a backup: one tar file with a manifest, which has the hash of every member."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO

from pydantic import TypeAdapter, ValidationError

from ledger.engine.sqlite_copy import flush_folder

#: The newest format of archives that this program writes and reads.
FORMAT = 1
MANIFEST, MANIFEST_HASH = "manifest.json", "manifest.sha256"
SQLITE_LEDGER, POSTGRES_LEDGER = "ledger.db", "ledger.dump"
KEY, DEPLOYMENT, POLICY, ENDS, EPOCH = "label.key.encrypted", "deployment.id", "policy.yml", "ends.json", "epoch.json"
#: What an archive may have in it; a member of another name is refused and written nowhere.
MEMBERS = frozenset({SQLITE_LEDGER, POSTGRES_LEDGER, KEY, DEPLOYMENT, POLICY, ENDS, EPOCH})
#: A manifest is far smaller.
MANIFEST_MAX = 1 << 20
_CHUNK = 1 << 20


class BadArchive(RuntimeError):
    """Say why an archive can't be used."""


@dataclass(frozen=True, slots=True)
class Member:
    """The size and the SHA-256 of one file in an archive."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """What an archive holds, of which ledger and when.

    `position` and `head` are the newest position of the journal that has a hash, and that hash. `major` is the version
    of the PostgreSQL server, 0 for SQLite. `readable_from` is the oldest revision whose code can work on the ledger.
    """

    made_at: datetime
    program: str
    deployment: str
    revision: str
    position: int
    head: str
    major: int = 0
    readable_from: str = ""
    format: int = FORMAT
    members: Mapping[str, Member] = field(default_factory=dict)

    @property
    def ledger(self) -> str:
        """Return the name of the member that is the ledger."""
        return POSTGRES_LEDGER if self.major else SQLITE_LEDGER


_ADAPTER: TypeAdapter[BackupManifest] = TypeAdapter(BackupManifest)


def hashed(path: Path) -> Member:
    """Return the size and the hash of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return Member(path.stat().st_size, digest.hexdigest())


def write_archive(path: Path, manifest: BackupManifest, files: Mapping[str, Path], folder: Path) -> None:
    """Write an archive with mode 0600 and wait until it is on disk. `manifest` names the members of `files`.

    `folder` is for small files that belong to the archive alone.
    """
    text = _ADAPTER.dump_json(manifest, indent=2)
    (folder / MANIFEST).write_bytes(text)
    (folder / MANIFEST_HASH).write_text(hashlib.sha256(text).hexdigest(), encoding="ascii")
    own = {MANIFEST: folder / MANIFEST, MANIFEST_HASH: folder / MANIFEST_HASH}
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name, file in (own | dict(files)).items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode, entry.mtime = file.stat().st_size, 0o600, int(manifest.made_at.timestamp())
                with file.open("rb") as content:
                    archive.addfile(entry, content)
        out.flush()
        os.fsync(out.fileno())
    flush_folder(path.parent)


def read_manifest(path: Path) -> BackupManifest:
    """Return the manifest of an archive. Raises `BadArchive`."""
    with _opened(path) as archive:
        return _manifest(archive)


def unpack(path: Path, folder: Path) -> BackupManifest:
    """Write the members of an archive into an empty folder and compare each with its hash. Raises `BadArchive`."""
    with _opened(path) as archive:
        manifest = _manifest(archive)
        for entry in archive:
            if entry.name in (MANIFEST, MANIFEST_HASH):
                continue
            if entry.name not in manifest.members or entry.name not in MEMBERS or not entry.isreg():
                raise BadArchive(f"{entry.name!r} does not belong in it")
            _unpack_member(archive, entry, folder / entry.name)
    for name, expected in manifest.members.items():
        if not (folder / name).is_file():
            raise BadArchive(f"it has no {name}")
        if hashed(folder / name) != expected:
            raise BadArchive(f"{name} is damaged")
    if manifest.ledger not in manifest.members:
        raise BadArchive("it has no ledger")
    return manifest


@contextmanager
def staging(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder of this process inside `parent`, and remove it at the end.

    Those that a killed process left are removed first: the lock on each tells whether its process still runs.
    """
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError), _locked(left / "lock"):
            shutil.rmtree(left, ignore_errors=True)
    folder = parent / f"{prefix}{secrets.token_hex(6)}"
    folder.mkdir(mode=0o700)
    with _locked(folder / "lock"):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, mode="r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise BadArchive("it is damaged, or no archive of GPU Shopper") from error


def _manifest(archive: tarfile.TarFile) -> BackupManifest:
    text, digest = (_small(archive, name) for name in (MANIFEST, MANIFEST_HASH))
    if hashlib.sha256(text).hexdigest() != digest.decode(errors="replace"):
        raise BadArchive("its manifest is damaged")
    try:
        manifest = _ADAPTER.validate_json(text)
    except ValidationError as error:
        raise BadArchive("a newer version of GPU Shopper wrote it; restore it with that version") from error
    if manifest.format > FORMAT:
        raise BadArchive("a newer version of GPU Shopper wrote it; restore it with that version")
    return manifest


def _small(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        entry = archive.getmember(name)
    except KeyError:
        raise BadArchive("it is damaged, or no archive of GPU Shopper") from None
    content = archive.extractfile(entry) if entry.isreg() and entry.size <= MANIFEST_MAX else None
    if content is None:
        raise BadArchive("its manifest is damaged")
    return content.read()


def _unpack_member(archive: tarfile.TarFile, entry: tarfile.TarInfo, target: Path) -> None:
    content: IO[bytes] | None = archive.extractfile(entry)
    if content is None:
        raise BadArchive(f"{entry.name} is damaged")
    with os.fdopen(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
        shutil.copyfileobj(content, out, _CHUNK)
        out.flush()
        os.fsync(out.fileno())
