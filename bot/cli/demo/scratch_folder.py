"""Give a demo its folder, and remove the folders of demos that were killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "gpu-shopper-demo-"
#: A running demo keeps a lock on this file; the system releases it however the demo ends.
LOCK = "in-use.lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder that is deleted at the end, or by the next demo if this one is killed."""
    remove_abandoned(Path(tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=PREFIX) as folder,
        (Path(folder) / LOCK).open("w", encoding="utf-8") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(folder)


def remove_abandoned(where: Path) -> list[Path]:
    """Delete this user's demo folders whose demo has ended; returns what was deleted.

    A folder without a lock file belongs to a demo that is just starting, so it is left alone.
    """
    mine = [path for path in where.glob(f"{PREFIX}*") if not path.is_symlink() and path.stat().st_uid == os.getuid()]
    gone = [path for path in mine if _is_abandoned(path / LOCK)]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return gone


def _is_abandoned(lock: Path) -> bool:
    try:
        with lock.open("r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
