"""Run the queue of this machine: one command on each GPU, whatever is ended and started again meanwhile.

Each command has a runner of its own (`job_process`), so it outlives this process. What this process knows is in the
journal and in the commands' folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bot.agent.credentials import Credentials, of_this_machine
from bot.agent.job_files import JobFiles
from bot.agent.job_process import CommandFolder, CommandState, content, time_text
from bot.agent.machine import log_tail
from bot.agent.memory import of_machine
from bot.agent.own_folder import folder_of
from bot.agent.queue.journal import EndedCommand, QueueJournal
from bot.agent.queue.order import FOLDER, QueueOrder, read_order
from bot.agent.retry_policy import shell_code
from bot.wire.checkin import COMMAND_LOG_CHARACTERS
from bot.wire.variables import TOKEN

LOOK_S = 0.3
#: How often a command may be lost with its machine's power or its runner before it counts as failed.
MOST_STARTS = 5
#: The words of the agent with which no further command begins.
ENDING = ("stop", "pause")
#: Runs a command's script and keeps its exit code, in case its runner is ended before it.
KEEPS_CODE = 'sh -c "$1"; code=$?; echo "$code" >"$2.new" && mv "$2.new" "$2"; exit "$code"'


@dataclass
class QueueRunner:
    """One queue. `folder` is the queue's own one, and the agent's files lie beside it."""

    order: QueueOrder
    journal: QueueJournal
    folder: Path
    credentials: Credentials | None = None
    sleep: Callable[[float], None] = time.sleep
    _printed: set[int] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Whether every command has its result. Of a queue that is dealt, more may come."""
        return not self.order.queue.dealt_of and self.journal.results.keys() >= self.order.queue.texts.keys()

    def run(self) -> None:
        """Run until every command has its result. Whatever may pass, such as a full disk, is tried again."""
        while not self.is_over:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                self.look()
            self.sleep(LOOK_S)

    def look(self) -> None:
        """Note every command that ended, then begin one on each free GPU. Raises OSError."""
        if self.order.queue.dealt_of:
            self.order = read_order(self.folder) or self.order
        for number, gpu in self.journal.running.items():
            self._follow(number, gpu)
        if self._begins_nothing():
            return
        busy = set(self.journal.running.values())
        free = [gpu for gpu in range(max(self.order.queue.gpus, 1)) if gpu not in busy]
        waiting = [one for one, _ in self.order.queue.commands if one not in self.journal.begun]
        for number, gpu in zip(waiting, free):  # noqa: B905 # The shorter one ends it.
            self.journal.begin(number, gpu)
            self._start(number, gpu)

    def _begins_nothing(self) -> bool:
        """Whether the machine is about to end or to pause, or the secrets did not come yet."""
        files = JobFiles(self.folder.parent)
        if any(files.asks(word) for word in ENDING):
            return True
        if not self.order.secrets or self.credentials is None:
            return False
        return not set(self.order.secrets) <= (self.credentials.names() or frozenset())

    def _follow(self, number: int, gpu: int) -> None:
        """Look at a command that began: keep its result, or start it again where it was lost."""
        place = self._place(number)
        state = place.read()
        if state is None or state.id != self._id(number):
            self._start(number, gpu)  # This process, or the machine, was ended in the middle of its start.
            return
        code = shell_code(state.exit_code) if state.exit_code is not None else None
        if code is None and state.is_running:
            return
        code = self._kept_code(number) if code is None else code
        if code is None and len(self.journal.begun[number]) < MOST_STARTS:
            if not self._begins_nothing():
                self.journal.begin(number, gpu)
                self._start(number, gpu)
            return
        self.journal.end(self._result(number, gpu, state, code))
        self._print(self.journal.results[number])

    def _start(self, number: int, gpu: int) -> None:
        script = ["/bin/sh", "-c", KEEPS_CODE, "sh", self.order.script, str(self._code_file(number))]
        own = {
            **self.order.environment,
            "QUEUE_COMMAND": self.order.queue.texts[number],
            "QUEUE_NUMBER": str(number),
            "CUDA_VISIBLE_DEVICES": str(gpu),
        }
        asks = self.folder.parent / "asks"
        self._place(number).start(self._id(number), script, self.folder.parent, own, self.order.retry, asks)

    def _place(self, number: int) -> CommandFolder:
        return CommandFolder(self.folder / str(number), once=True)

    def _id(self, number: int) -> str:
        return f"{self.order.id}-{number}-{len(self.journal.begun[number])}"

    def _code_file(self, number: int) -> Path:
        return self._place(number).folder / f"exit-{len(self.journal.begun[number])}"

    def _kept_code(self, number: int) -> int | None:
        try:
            return int(content(self._code_file(number), 16)) & 255
        except (OSError, ValueError):
            return None

    def _result(self, number: int, gpu: int, state: CommandState, code: int | None) -> EndedCommand:
        place = self._place(number)
        ended_at = state.ended_at or _written_at(self._code_file(number))
        tail = log_tail((place.log,))[-COMMAND_LOG_CHARACTERS:]
        attempts = max(state.attempt, 1)
        return EndedCommand(number, code, gpu, state.started_at, ended_at, attempts, tail)

    def _print(self, result: EndedCommand) -> None:
        """Say in the job's log how a command ended, with the end of its own log."""
        planned = self.order.queue
        total, command = planned.dealt_of or len(planned.commands), planned.texts[result.number]
        code = "unknown" if result.exit_code is None else result.exit_code
        said = f"--- command {result.number} of {total} on GPU {result.gpu}: exit code {code}: {command[:200]}\n"
        log = self.folder.parent / "job" / "job.log"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):  # It is for people; the journal has the result.
            file = os.open(log, flags, 0o644)
            with os.fdopen(file, "w", encoding="utf-8") as opened:
                opened.write(f"{said}{result.log_tail.rstrip()}\n")


def _written_at(path: Path) -> str:
    try:
        written_s = path.stat().st_mtime
    except OSError:
        written_s = time.time()
    return time_text(written_s)


def main(_arguments: list[str], /) -> int:
    """Run the kept queue, unless another process runs it."""
    memory = of_machine(folder_of(os.environ))
    folder = memory.folder.parent / FOLDER
    order = read_order(folder)
    if order is None:
        return 1
    try:
        lock = os.open(memory.folder / "queue.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        print(f"gpu-shopper-agent: No queue runs: {error}", file=sys.stderr, flush=True)
        return 1
    credentials = of_this_machine(os.environ, memory.boot_id)
    os.environ.pop(TOKEN, None)  # The commands get the variables of this process, and the token stays with the agent.
    QueueRunner(order, QueueJournal.read(folder), folder, credentials).run()
    return 0
