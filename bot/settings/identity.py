"""Create and read the identity of this deployment, which must never be in its database: label key and name.

Both are made once and stored in 0600 files beside the SQLite database (or in the data folder when the database is
elsewhere). An operator who loses them can still read old labels as *ours by name*, but can no longer prove it.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from bot.rules.values.labels import DEPLOYMENT_FILE, DEPLOYMENT_LENGTH, KEY_FILE, LabelKey
from ledger.kernel.ids import BASE32

KEY_BYTES = 32
LOOSE = stat.S_IRWXG | stat.S_IRWXO


class IdentityError(ValueError):
    """The stored identity cannot be used; the message says which file and how to correct it."""


def private_directory(path: Path) -> Path:
    """Create `path` with mode 0700, or check that nobody else may enter it. `IdentityError` when its mode is loose."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    refuse_loose(path)
    return path


def refuse_loose(path: Path) -> None:
    """Raise `IdentityError` when other users of this machine may read or write `path`."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & LOOSE:
        right = "700" if path.is_dir() else "600"
        raise IdentityError(f"{path} has mode {mode:04o}, so others can reach it; run: chmod {right} {path}")


def identity(folder: Path, *, key_hex: str | None = None, deployment: str | None = None) -> LabelKey:
    """Return the label key of this deployment: from the given values, or read from `folder` or created there once.

    Raises `IdentityError` for a loose mode or for a key or name of the wrong format.
    """
    key_text = key_hex or _stored(folder / KEY_FILE, secrets.token_hex(KEY_BYTES))
    name = deployment or _stored(
        folder / DEPLOYMENT_FILE, "".join(secrets.choice(BASE32) for _ in range(DEPLOYMENT_LENGTH))
    )
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2}){16,}", key_text):
        raise IdentityError(
            "the label key must be at least 32 hexadecimal digits; make one with: "
            'python3 -c "import secrets; print(secrets.token_hex(32))"'
        )
    try:
        return LabelKey(name, bytes.fromhex(key_text))
    except ValueError as error:
        raise IdentityError(str(error)) from error


def stored_identity(folder: Path, key_hex: str | None, deployment: str | None) -> tuple[str | None, str | None]:
    """Return the label key, hexadecimal, and the deployment's name; None for what is neither given nor stored.

    Creates nothing. Raises `IdentityError` for a loose mode.
    """
    return key_hex or _read(folder / KEY_FILE), deployment or _read(folder / DEPLOYMENT_FILE)


def _read(path: Path) -> str | None:
    """Return the content of a private file; None when there is none."""
    if not path.exists():
        return None
    refuse_loose(path)
    return path.read_text(encoding="ascii").strip()


def _stored(path: Path, fresh: str) -> str:
    """Return the content of a private file, which is created with `fresh` when it does not exist.

    Two processes that start at once agree on one.
    """
    private_directory(path.parent)
    # The text is written under another name first, so that a second process never reads half a key.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    if not path.exists():
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.write(handle, fresh.encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    refuse_loose(path)
    return path.read_text(encoding="ascii").strip()
