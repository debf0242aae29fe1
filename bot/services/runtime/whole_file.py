"""Replace a small file whole, with mode 0600, so that a crash leaves either the old content or the new one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ledger.engine.sqlite_copy import flush_folder


def replace_file(path: Path, content: bytes) -> None:
    """Write the content to disk beside the file, then put it in the file's place. Raises `OSError`."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # It has mode 0600.
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise
    flush_folder(path.parent)  # After a power cut the folder could still name the old content.
