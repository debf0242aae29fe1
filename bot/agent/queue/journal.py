"""Keep an append-only journal of a queue: which command began on which GPU, and how it ended, each end once.

A line is written and flushed to the disk before anything follows from it. A line that a power cut tore is left out, and
the next line begins after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bot.agent.job_process import content
from bot.wire.queue import MOST_COMMANDS

JOURNAL = "journal.jsonl"
BYTES = 1 << 24
BEGUN, ENDED = "begun", "ended"


@dataclass(frozen=True)
class EndedCommand:
    """How one command ended. `exit_code` is None where nobody saw its end, however often it was started again."""

    number: int
    exit_code: int | None
    gpu: int
    started_at: str
    ended_at: str
    attempts: int = 1
    log_tail: str = ""


@dataclass
class QueueJournal:
    """The journal in `folder`, as it was read, with what this process has added since."""

    folder: Path
    #: By command, on which GPU it began each time.
    begun: dict[int, list[int]] = field(default_factory=dict)
    #: By command, in the order in which they ended.
    results: dict[int, EndedCommand] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> QueueJournal:
        """Read it; where nothing began it is empty."""
        journal = cls(folder)
        try:
            text = content(folder / JOURNAL, BYTES).decode(errors="replace")
        except OSError:
            return journal
        for line in _lines(text):
            journal._take(line)
        return journal

    @property
    def running(self) -> dict[int, int]:
        """The commands that began and did not end, with their GPUs."""
        return {number: gpus[-1] for number, gpus in self.begun.items() if number not in self.results}

    def begin(self, number: int, gpu: int) -> None:
        """Note that a command begins on a GPU. Raises OSError, and then it must not begin."""
        self._append({"kind": BEGUN, "number": number, "gpu": gpu})

    def end(self, result: EndedCommand) -> None:
        """Note how a command ended, unless that is noted already. Raises OSError."""
        if result.number not in self.results:
            self._append({"kind": ENDED, **asdict(result)})

    def _take(self, line: dict[str, Any]) -> None:
        try:
            number = int(line["number"])
            if not 1 <= number <= MOST_COMMANDS:
                return
            if line["kind"] == BEGUN:
                self.begun.setdefault(number, []).append(int(line["gpu"]))
            elif line["kind"] == ENDED:
                fields = {name: line[name] for name in EndedCommand.__dataclass_fields__ if name in line}
                self.results.setdefault(number, EndedCommand(**fields | {"number": number}))
        except (KeyError, TypeError, ValueError):
            return

    def _append(self, line: dict[str, Any]) -> None:
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self.folder / JOURNAL, flags, 0o644)
        try:
            size = os.fstat(file).st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            said = ("\n" if torn else "") + json.dumps(line) + "\n"
            written = os.write(file, said.encode())
            os.fsync(file)
            if written != len(said.encode()):
                raise OSError("the disk took a part of a line only")
        finally:
            os.close(file)
        self._take(line)


def _lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict):
            yield said
