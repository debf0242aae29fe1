"""Put the small files of an archive into a deployment: where none are, and of each record what knows the most."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.rules.values.labels import DEPLOYMENT_FILE, KEY_FILE
from bot.services.backups import archive
from bot.services.backups.archive import BackupManifest
from bot.services.backups.installation import RECORDS, Installation
from bot.services.runtime import ends_copy
from bot.services.runtime.epoch import restored_content
from ledger.engine.sqlite_copy import flush_folder


def put_files(place: Installation, manifest: BackupManifest, key_hex: str | None, folder: Path) -> tuple[str, ...]:
    """Put the small files of an archive, unpacked in `folder`, in place. Return what stayed and people should know."""
    if place.deployment is None:
        put(place.folder / DEPLOYMENT_FILE, manifest.deployment.encode(), place.folder)
    if place.key_hex is None and key_hex is not None:
        put(place.folder / KEY_FILE, key_hex.encode(), place.folder)
    ends, here = folder / archive.ENDS, place.folder / RECORDS[archive.ENDS]
    if archive.ENDS in manifest.members and _is_newer(ends, here):
        put(here, ends.read_bytes(), place.folder)
    epoch = place.folder / RECORDS[archive.EPOCH]
    put(epoch, restored_content(place.folder, folder, manifest.made_at), place.folder)
    return _put_policy(place, folder / archive.POLICY) if archive.POLICY in manifest.members else ()


@dataclass
class Swap:
    """Whether a restore has begun to put the new ledger in place; from then on it may be there whatever fails."""

    may_have_happened: bool = False

    def begin(self) -> None:
        """Note that the next step changes the ledger."""
        self.may_have_happened = True


@contextmanager
def put_back_on_failure(file: Path) -> Iterator[Swap]:
    """Put a file back as it was when the block fails before its swap; later the file belongs to the new ledger."""
    content, swap = file.read_bytes() if file.exists() else None, Swap()
    try:
        yield swap
    except BaseException:
        if swap.may_have_happened:
            pass
        elif content is not None:
            put(file, content, file.parent)
        else:
            file.unlink(missing_ok=True)
        raise


def put(file: Path, content: bytes, owned_as: Path) -> None:
    """Give a file its new content once that is on disk, with mode 0600 and the owner of the folder `owned_as`."""
    draft = file.with_name(f".{file.name}.restored")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    own(draft, owned_as)
    draft.replace(file)
    flush_folder(file.parent)


def own(file: Path, folder: Path) -> None:
    """Give a file to whom the folder belongs; only root can, and only root needs to."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.chown(file, owner.st_uid, owner.st_gid)


def _put_policy(place: Installation, policy: Path) -> tuple[str, ...]:
    """Put the policy where none is: a restore gives nobody the rights back that were taken since."""
    if place.policy is None:
        return ("The archive has a policy, and GPU_SHOPPER_POLICY is not set here: every default is in force.",)
    if not place.policy.exists():
        put(place.policy, policy.read_bytes(), place.policy.parent)
    elif place.policy.read_bytes() != policy.read_bytes():
        return (f"{place.policy} stays as it is. The archive has another policy.",)
    return ()


def _is_newer(archived: Path, here: Path) -> bool:
    """Whether the archive's copy of what must end is newer than the one that is there."""
    there, present = (ends_copy.load(path).read_at for path in (archived, here))
    return there is not None and (present is None or there > present)
