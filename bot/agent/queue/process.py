"""Keep the queue's process running, and say in check-ins how far the queue is and what its commands' results are."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bot.agent.job_process import own_program
from bot.agent.queue.journal import JOURNAL, EndedCommand, QueueJournal
from bot.agent.queue.order import QueueOrder, keep_dealt, read_order
from bot.wire.checkin import MOST_RESULTS, CheckinAnswer, ReportedResult
from bot.wire.codec import right_fields, to_json

#: How soon the next check-in comes while results wait to be reported.
SOON_S = 2.0
#: The log of a result that can't be read.
UNREADABLE = "Its log can't be read."


@dataclass
class QueueProcess:
    """The queue in `folder`. `taken` is how many of its results GPU Shopper has, as the last answer said."""

    folder: Path
    taken: int = 0
    _process: subprocess.Popen[bytes] | None = None
    #: The journal as it was read last, and how long its file was: it only grows.
    _journal: QueueJournal | None = None
    _read_bytes: int = 0

    def keep_running(self) -> None:
        """Start the queue's process where it does not run and something is left; one that runs makes this one end."""
        if self._process is not None and self._process.poll() is None:
            return
        order = read_order(self.folder)
        if order is None or (not order.queue.dealt_of and self._is_over(order)):
            return
        try:
            nothing = subprocess.DEVNULL
            command = [sys.executable, *own_program(), "run-queue"]
            self._process = subprocess.Popen(
                command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
            )
        except OSError:
            return  # The next check-in tries again.

    def take(self, answer: CheckinAnswer) -> None:
        """Learn from an answer which results arrived, and which commands it deals to this machine."""
        self.taken = max(answer.results_taken, 0)
        if answer.commands:
            with contextlib.suppress(OSError):  # The next answer says them again.
                keep_dealt(self.folder, answer.commands)

    def _is_over(self, order: QueueOrder) -> bool:
        return self._read().results.keys() >= order.queue.texts.keys()

    @property
    def is_reporting(self) -> bool:
        """Whether a result waits to be reported."""
        return len(self._read().results) > self.taken

    def report(self) -> dict[str, Any]:
        """Return what a check-in says of the queue; nothing where there is none.

        The job is over only with a check-in that has the last results, so that none is missing when its session ends.
        """
        order = read_order(self.folder)
        if order is None:
            return {}
        journal, planned = self._read(), order.queue
        results = list(journal.results.values())
        failed = sum(one.exit_code != 0 for one in results)
        sent = results[self.taken : self.taken + MOST_RESULTS]
        found: dict[str, Any] = {
            "queue": {
                "waiting": len(planned.commands) - len(journal.begun),
                "running": len(journal.running),
                "done": len(results) - failed + planned.done,
                "failed": failed + planned.failed,
            },
            "results": [_reported(self.taken + place, one) for place, one in enumerate(sent, 1)],
        }
        # A machine that shares its queue may get more commands, so GPU Shopper says when it has no work.
        is_over = not planned.dealt_of and self._is_over(order)
        if is_over and self.taken + len(sent) >= len(results):
            is_good = not failed and not planned.failed
            return found | {"job": "done" if is_good else "failed", "job_exit_code": 0 if is_good else 1}
        return found | {"job": "running"}

    def _read(self) -> QueueJournal:
        """Return the journal, read again only when it has grown."""
        try:
            there = (self.folder / JOURNAL).stat().st_size
        except OSError:
            there = 0
        if self._journal is None or there != self._read_bytes:
            self._journal, self._read_bytes = QueueJournal.read(self.folder), there
        return self._journal


def _reported(index: int, result: EndedCommand) -> dict[str, Any]:
    """Return a result as a check-in has it. What of it can't be read is unknown, so that no result is missing."""
    now = to_json(datetime.now(timezone.utc))
    unknown = {"gpu": 0, "exit_code": None, "attempts": 1, "started_at": now, "ended_at": now, "log_tail": UNREADABLE}
    content = {"index": index, **asdict(result)}
    return {name: to_json(part) for name, part in (unknown | right_fields(ReportedResult, content)).items()}
