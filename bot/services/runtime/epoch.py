"""Keep the epoch: outside the ledger, the newest events that the ledger must have.

A ledger that was restored from a copy lacks some of them, so it shows its age at the next start. The file is flushed to
disk before a create, an extension or a decision is acted on. An end never waits for it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bot.rules.instances.ledger_age import AcceptedRecords, EpochEntry, NamedEvent
from bot.services.runtime.disk_calls import THREADS, within
from bot.services.runtime.event_content import named_event
from bot.services.runtime.whole_file import replace_file
from ledger.core import Tx
from ledger.core.events import newest_event

NAME = "epoch.json"
LOCK = ".epoch.lock"
#: The name of the entry that says that a restore has put a copy in place.
RESTORED = "restore"
#: A read or a write that takes longer has failed, and what waits for a write does not happen now.
WRITE_S = 5.0
NO_ANSWER = "the disk does not answer"
#: Another process of this machine has the file for the time of one write.
LOCK_S = 2.0
LOCK_STEP_S = 0.02
_START = datetime(1970, 1, 1, tzinfo=UTC)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EpochFile:
    """The content of one file: an entry for each replica that wrote to it."""

    entries: tuple[EpochEntry, ...] = ()


_ADAPTER: TypeAdapter[EpochFile] = TypeAdapter(EpochFile)


def load(folder: Path) -> tuple[EpochEntry, ...]:
    """Read a folder's epoch; nothing where there is none or it cannot be read."""
    try:
        return _ADAPTER.validate_json((folder / NAME).read_bytes()).entries
    except FileNotFoundError:
        return ()
    except (OSError, ValidationError) as error:
        log.warning("the epoch in %s cannot be read: %s", folder, type(error).__name__)
        return ()


def restored_content(here: Path, archived: Path, copied_at: datetime) -> bytes:
    """Return what a folder's epoch is once a restore puts a copy of that time in place, with its epoch in `archived`.

    It has the newest entry of each replica, and one that makes the next start ask operators first, also where the
    archive's epoch is all that is left.
    """
    newest: dict[str, EpochEntry] = {}
    for entry in (*load(archived), *load(here)):
        if not entry.is_restored and (entry.replica not in newest or entry.is_newer_than(newest[entry.replica])):
            newest[entry.replica] = entry
    mark = EpochEntry(RESTORED, 0, copied_at, is_restored=True)
    return _ADAPTER.dump_json(EpochFile((*newest.values(), mark)))


@dataclass
class Epoch:
    """The epoch of one process in each of its folders; the same one for its jobs and for its end watchdog.

    Without folders nothing is written, and nothing waits. `before` are the entries of earlier processes and those that
    the ledger contradicts: they stay until the ledger was found to have all that they name, or operators accept it.
    A folder that does not answer at first counts as a write that failed until it does. Then its entries count as well.
    """

    folders: Sequence[Path] = ()
    replica: str = ""
    before: tuple[EpochEntry, ...] = ()
    #: Why the last write failed; "" when it worked.
    problem: str = ""
    _own: EpochEntry = field(init=False)
    #: Entries in the files that count no more, by replica and time.
    _dropped: set[tuple[str, datetime]] = field(default_factory=set)
    #: Folders whose epoch has not been read yet.
    _unread: set[Path] = field(default_factory=set)
    _state: threading.Lock = field(default_factory=threading.Lock)
    _file: threading.Lock = field(default_factory=threading.Lock)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _added: int = 0
    _written: int = 0

    def __post_init__(self) -> None:
        """Take over what earlier processes have written."""
        self._own = EpochEntry(self.replica, 0, _START)
        self._unread = set(self.folders)
        wait([THREADS.submit(self._take_over, folder) for folder in self.folders], WRITE_S)
        if self._unread:
            self.problem = NO_ANSWER
            log.warning("the epoch was not read: %s", self.problem)

    def _take_over(self, folder: Path) -> None:
        entries = load(folder)
        with self._state:
            merged = {*self.before, *entries}
            self.before = tuple(sorted(merged, key=lambda entry: (entry.at, entry.replica)))
            self._unread.discard(folder)

    def entries(self) -> tuple[EpochEntry, ...]:
        """Return what the ledger must have: what earlier processes have seen of it, and what this one has."""
        with self._state:
            return (*self.before, self._own)

    # ── what the ledger has ──────────────────────────────────────────────────────────────────────

    def note(self, position: int, event: NamedEvent | None, at: datetime) -> None:
        """Note how far the journal was found to go. The next write has it."""
        with self._state:
            entry = self._own if event is None else self._own.with_event(event, at)
            at = max(entry.at, at) if self._own.names_something else at
            self._own = replace(entry, position=max(entry.position, position), at=at)

    def confirm(self, entries: Collection[EpochEntry]) -> None:
        """Drop these entries of earlier processes: the ledger has all that they name."""
        self._drop(lambda entry: entry in entries)

    def accept(self, records: AcceptedRecords) -> None:
        """Drop what was accepted: operators go on without it."""
        self._drop(records.has)
        with self._state:
            if records.has(self._own):
                self._own = EpochEntry(self.replica, 0, _START)

    def _drop(self, counts_no_more: Callable[[EpochEntry], bool]) -> None:
        with self._state:
            self._dropped |= {(entry.replica, entry.at) for entry in self.before if counts_no_more(entry)}
            self.before = tuple(entry for entry in self.before if not counts_no_more(entry))

    def set_aside(self) -> None:
        """Keep what this process has seen as it is: the ledger went back under it, and is another one from here on."""
        with self._state:
            if self._own.events or self._own.position:
                aside = replace(self._own, replica=f"{self.replica}-{int(self._own.at.timestamp())}")
                self.before = (*self.before, aside)
                self._own = EpochEntry(self.replica, 0, _START)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    async def cover(self, tx: Tx) -> bool:
        """Write the newest event of a committed transaction, and return whether it is on disk.

        All that wait at one time share one write. False where it failed or took too long.
        """
        event = newest_event(tx)
        if not self.folders or event is None:
            return True
        with self._state:
            self._own = self._own.with_event(named_event(event), event.at)
            self._added += 1
            mine = self._added
        async with self._turn:
            if self._written >= mine:
                return True
            return await self.write()

    async def works(self) -> bool:
        """Whether the last write worked, or one works now."""
        if not self.problem:
            return True
        async with self._turn:
            return await self.write()

    async def write(self) -> bool:
        """Write every file within a few seconds. False when one could not be written, or its disk does not answer."""
        try:
            return await within(WRITE_S, self.save)
        except TimeoutError:
            self.problem = NO_ANSWER
            log.warning("the epoch was not written: %s", self.problem)
            return False

    def save(self) -> bool:
        """Write every file now. False when one of them could not be written."""
        if not self.folders:
            return True
        if not self._file.acquire(timeout=WRITE_S):
            return False
        try:
            with self._state:
                mine, added = (*self.before, self._own), self._added
                unread = set(self._unread)
            for folder in self.folders:
                if folder not in unread:
                    self._save(folder, mine)
        except OSError as error:
            self.problem = error.strerror or type(error).__name__
            log.warning("the epoch was not written: %s", self.problem)
            return False
        finally:
            self._file.release()
        if unread:
            self.problem = NO_ANSWER
            return False
        self.problem, self._written = "", max(self._written, added)
        return True

    def _save(self, folder: Path, mine: Sequence[EpochEntry]) -> None:
        with _locked(folder):
            newest: dict[str, EpochEntry] = {}
            for entry in (*load(folder), *mine):
                if entry.at == _START or (entry.replica, entry.at) in self._dropped:
                    continue
                # Another replica that runs may have written since this process read its entry.
                if entry.replica not in newest or entry.is_newer_than(newest[entry.replica]):
                    newest[entry.replica] = entry
            replace_file(folder / NAME, _ADAPTER.dump_json(EpochFile(tuple(newest.values()))))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes of this machine from writing the same file. Raises `OSError` after a while."""
    handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        pause, waited_s = threading.Event(), 0.0
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if waited_s >= LOCK_S:
                    raise OSError(error.errno, "another process keeps it") from error
                pause.wait(LOCK_STEP_S)
                waited_s += LOCK_STEP_S
        yield
    finally:
        os.close(handle)
