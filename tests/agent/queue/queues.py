"""A queue in a folder, run by real processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bot.agent.job_process import CommandFolder
from bot.agent.queue.journal import QueueJournal
from bot.agent.queue.order import QueueOrder
from bot.agent.queue.runner import QueueRunner
from bot.agent.retry_policy import ONCE, RetryPolicy
from bot.wire.queue import PlannedQueue

SCRIPT = 'eval "$QUEUE_COMMAND"'


def order(
    commands: Sequence[str], gpus: int = 2, retry: RetryPolicy = ONCE, secrets: tuple[str, ...] = ()
) -> QueueOrder:
    planned = PlannedQueue(tuple(enumerate(commands, 1)), gpus)
    return QueueOrder("start-1-run", planned, SCRIPT, {"WORD": "here"}, secrets, retry)


def runner(folder: Path, wanted: QueueOrder) -> QueueRunner:
    """A runner that knows what the journal says, as after each start."""
    wanted.keep(folder)
    (folder.parent / "job").mkdir(exist_ok=True)
    return QueueRunner(wanted, QueueJournal.read(folder), folder, sleep=lambda _s: time.sleep(0.02))


def results(folder: Path) -> Mapping[int, int | None]:
    return {number: one.exit_code for number, one in QueueJournal.read(folder).results.items()}


def until(holds: Callable[[], object], timeout_s: float = 20.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def place(folder: Path, number: int) -> CommandFolder:
    return CommandFolder(folder / str(number))
