"""Read and merge `cost_ledger.json`, a list of entries shared with other tools, under a lock and atomically."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bot.rules.billing.external_costs import exported_id, is_own, key_of

#: More than this is no cost ledger.
LARGEST_BYTES = 64 * 1024 * 1024


class SharedFileError(ValueError):
    """The file cannot be used; the message says why."""


def read_entries(path: Path) -> list[Any]:
    """Return the entries of a file, none if it does not exist. `SharedFileError` if it is not a list of entries."""
    return _entries(path, _read(path))


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise SharedFileError(f"{path} is larger than {LARGEST_BYTES // 1024 // 1024} MiB")
        return json.loads(path.read_text(encoding="utf-8") or "[]")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise SharedFileError(f"{path} cannot be read: {error}") from error


def _entries(path: Path, document: Any) -> list[Any]:
    """Return the entries of a document: a list, or an object that has one under `entries`."""
    entries = document.get("entries") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise SharedFileError(f"{path} is no list of entries")
    return entries


def others(entries: Sequence[Any]) -> list[Any]:
    """Return the entries that other tools wrote."""
    return [entry for entry in entries if not is_own(entry)]


def merge(path: Path, own: Sequence[dict[str, Any]]) -> int:
    """Merge our entries by id into the file that a link leads to; all else stays. Return how many are new.

    A cost that another tool wrote into the file itself is not added a second time.
    """
    with _locked(path):
        path = path.resolve()
        document = _read(path)
        entries = _entries(path, document)
        theirs = {exported_id(key_of(one)) for one in others(entries) if isinstance(one, dict)}
        entries[:] = [one for one in entries if not (is_own(one) and one.get("id") in theirs)]
        places = {str(entry["id"]): n for n, entry in enumerate(entries) if isinstance(entry, dict) and "id" in entry}
        new = 0
        for entry in own:
            if entry["id"] in theirs:
                continue
            if entry["id"] in places:
                entries[places[entry["id"]]] = entry
            else:
                entries.append(entry)
                new += 1
        _write(path, document)
    return new


def _write(path: Path, document: Any) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            Path(name).chmod(path.stat().st_mode & 0o777)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Take the lock that other tools take: `flock` on the file's name with `.lock`, of a link and of its file."""
    names = [name.with_name(f"{name.name}.lock").resolve() for name in (path, path.resolve())]
    with ExitStack() as held:
        for name in dict.fromkeys(names):
            lock = held.enter_context(name.open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_locked(path: Path) -> list[Any]:
    """Read the entries under the lock, while nobody writes."""
    if not path.exists():
        return []
    with _locked(path):
        return read_entries(path)
