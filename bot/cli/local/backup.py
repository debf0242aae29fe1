"""`gpu-shopper backup` and `restore`: one archive of the ledger and its files, its check, and the way back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.access.settings import BAD_SETTINGS, explained, fail, private_umask, settings
from bot.cli.terminal.options import Json
from bot.cli.terminal.screen import at_terminal, prompt, say
from bot.clock import SystemClock
from bot.services.backups import key_box
from bot.services.backups.archive import KEY, BackupManifest
from bot.services.backups.backup import back_up
from bot.services.backups.installation import BackupRefused, Installation
from bot.services.backups.restore import CheckedArchive, check
from bot.services.backups.restore import restore as put_back
from bot.settings import Settings, private_directory, refuse_loose, stored_identity
from ledger.engine.postgres_copy import ClientProblem


class KeyUse(StrEnum):
    """What a passphrase is needed for."""

    #: It encrypts the key of a new archive.
    ENCRYPT = "encrypt"
    #: It opens the key of an archive that is restored.
    OPEN = "open"
    #: It opens the key of an archive that is checked, where one is given.
    TRY = "try"


Passphrase = Annotated[
    Path | None, typer.Option("--passphrase-file", help="A file with the passphrase of the label key, mode 0600.")
]
WithoutKey = Annotated[bool, typer.Option("--without-key", help="Leave the label key out.")]


def backup(
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="The folder of the archives.")] = None,
    archive: Annotated[
        Path | None, typer.Option("--check", metavar="ARCHIVE", help="Check whether this archive would come back.")
    ] = None,
    passphrase_file: Passphrase = None,
    without_key: WithoutKey = False,
    as_json: Json = False,
) -> None:
    """Write one archive with the ledger, the label key, the policy and what must end. The service may run meanwhile.

    A passphrase encrypts the label key: from a file, from GPU_SHOPPER_BACKUP_PASSPHRASE, or typed at the terminal.
    """
    if (folder is None) is (archive is None):
        fail("Name the folder of the archives, or an archive after --check.", 2)
    private_umask()
    place = settings()
    with _worded():
        if archive is not None:
            passphrase = None if without_key else _passphrase(place, passphrase_file, KeyUse.TRY)
            _check(archive, passphrase, as_json=as_json)
        elif folder is not None:
            passphrase = None if without_key else _passphrase(place, passphrase_file, KeyUse.ENCRYPT)
            written = asyncio.run(
                back_up(_installation(place), folder, passphrase, SystemClock().now(), metadata.version("gpu-shopper"))
            )
            sentence = f"{written.path} is written: {_contents(written.manifest)}."
            _show(written.manifest, sentence, written.path, as_json=as_json)
            if written.broken:
                fail(f"restore will refuse it, because the ledger's journal was changed: {written.broken[0]}.")


def restore(
    archive: Annotated[Path, typer.Argument(help="An archive that `gpu-shopper backup` wrote.")],
    passphrase_file: Passphrase = None,
    without_key: Annotated[
        bool, typer.Option("--without-key", help="Leave the archive's label key alone, and use the one that is here.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check an archive, then put its ledger in the place of the present one, which stays beside it. Stop serve first.

    A file that is here stays: the policy, the label key, and newer records of what must end.
    """
    private_umask()
    place = settings()
    with _worded():
        private_directory(place.identity_dir)
        passphrase = None if without_key else _passphrase(place, passphrase_file, KeyUse.OPEN)
        restored = asyncio.run(
            put_back(_installation(place), archive, passphrase, SystemClock().now(), without_key=without_key)
        )
        aside = f" The ledger before it is at {restored.aside}." if restored.aside else ""
        lines = [f"{archive} is restored: {_contents(restored.manifest)}.{aside}", *restored.notes]
        lines.append("Start `gpu-shopper serve`, then see `gpu-shopper recover` for what happened since.")
        _show(restored.manifest, "\n".join(lines), archive, as_json=as_json, aside=restored.aside)


def _check(archive: Path, passphrase: str | None, *, as_json: bool) -> None:
    """Say in one line whether an archive would come back; it is unpacked beside itself."""
    checked: CheckedArchive = check(archive, archive.absolute().parent, passphrase)
    key = "It has no label key"
    if KEY in checked.manifest.members:
        key = "The passphrase opens its label key" if checked.key_hex else "Its label key was not tried"
    _show(
        checked.manifest,
        f"{archive} would come back: {_contents(checked.manifest)}. {key}.",
        archive,
        as_json=as_json,
        key_opens=checked.key_hex is not None,
    )


def _contents(manifest: BackupManifest) -> str:
    kind = f"PostgreSQL {manifest.major}" if manifest.major else "SQLite"
    return (
        f"deployment {manifest.deployment} on {kind}, revision {manifest.revision}, up to event {manifest.position}, "
        f"of {manifest.made_at:%Y-%m-%d %H:%M} UTC"
    )


def _show(manifest: BackupManifest, sentence: str, path: Path, *, as_json: bool, **more: Any) -> None:
    if not as_json:
        say(sentence)
        return
    facts: dict[str, Any] = {
        "archive": str(path),
        "made_at": manifest.made_at.isoformat(),
        "deployment": manifest.deployment,
    }
    facts |= {"revision": manifest.revision, "position": manifest.position, "hash": manifest.head}
    typer.echo(json.dumps(facts | {"members": sorted(manifest.members)} | more))


def _installation(place: Settings) -> Installation:
    key_hex, deployment = stored_identity(
        place.identity_dir, place.label_key.get_secret_value() if place.label_key else None, place.deployment
    )
    return Installation(place.database, place.sqlite_file, place.identity_dir, place.policy, deployment, key_hex)


def _passphrase(place: Settings, file: Path | None, use: KeyUse) -> str | None:
    """Return the passphrase: from the file, the setting, or a person at the terminal; None where there is none.

    One that encrypts is required, typed twice and long enough. One that is only tried is not asked for.
    """
    if file is not None:
        refuse_loose(file)
        passphrase = file.read_text(encoding="utf-8").strip()
    elif place.backup_passphrase is not None:
        passphrase = place.backup_passphrase.get_secret_value()
    elif use is not KeyUse.TRY and at_terminal():
        passphrase = prompt("Passphrase of the label key", hidden=True)
        if use is KeyUse.ENCRYPT and prompt("The same again", hidden=True) != passphrase:
            fail("The two passphrases differ.", 2)
    else:
        passphrase = ""
    if use is KeyUse.ENCRYPT and len(passphrase) < key_box.SHORTEST:
        fail(
            f"The label key needs a passphrase of at least {key_box.SHORTEST} characters: --passphrase-file FILE, or "
            "GPU_SHOPPER_BACKUP_PASSPHRASE. Or add --without-key.",
            BAD_SETTINGS,
        )
    return passphrase or None


@contextmanager
def _worded() -> Iterator[None]:
    """Turn what stops a backup or a restore into its sentence."""
    with explained():
        try:
            yield
        except (BackupRefused, ClientProblem) as error:
            fail(str(error))
