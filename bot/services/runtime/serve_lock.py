"""Lock the `serve` role on one SQLite file, so that one service works on it, and no restore replaces it meanwhile."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class AlreadyServed(RuntimeError):
    """Say which process has the lock."""


@contextmanager
def serve_lock(file: Path | None) -> Iterator[None]:
    """Hold the lock of a SQLite file; nothing for PostgreSQL. Raises `AlreadyServed`. Commands may open the file."""
    if file is None:
        yield
        return
    lock = Path(f"{file}.lock")
    try:
        handle, owned = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600), True
    except OSError:
        # On a disk that cannot be written the lock of an earlier start can still be taken, so that its ends come.
        handle, owned = os.open(lock, os.O_RDONLY), False
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyServed(lock.read_text() or "unknown") from None
        if owned:
            with suppress(OSError):  # The number is for people; on a full disk there is none.
                os.ftruncate(handle, 0)
                os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        os.close(handle)
