"""Run the watchdog: it keeps the reporter running, and ends the machine at its deadline.

It decides alone: it checks every signature itself, counts on the boot clock, and needs neither the reporter nor GPU
Shopper. The user of the machine is its administrator and can end it. Then the service's own end remains.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bot.agent import early_reporter, settings
from bot.agent.deadline import GRACE_S, TRIES_S, Deadline, Signed, boot_s
from bot.agent.job_files import LAST_ASKS, JobFiles
from bot.agent.memory import AgentRunsAlreadyError, Memory, of_machine
from bot.agent.own_folder import folder_of
from bot.agent.reporter_process import ReporterProcess
from bot.agent.self_termination import NO_FACILITY, calls, end_machine
from bot.agent.settings import MachineSettings
from bot.wire.variables import FIRST_MESSAGE

#: The longest wait between two looks at the clock.
LOOK_S = 5.0
#: The pause between two attempts to end the machine.
RETRY_S = 15.0
#: A machine that was stopped may start after the end that it knows, with a later one approved meanwhile. So a watchdog
#: that starts behind its end waits this long for the service.
SETTLE_S = 120.0
#: Exit codes of sysexits.h: a wrong use, nothing to report to, and an agent that runs already.
USAGE, CONFIGURATION, TEMPORARY = 64, 78, 75


def log(text: str) -> None:
    """Write one line to standard error, which the start script sends to a file. A full disk is no reason to end."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}", file=sys.stderr, flush=True)


@dataclass
class Watchdog:
    """The watchdog of one machine. `environment` holds what its cloud gave it to end itself with."""

    deadline: Deadline
    environment: Mapping[str, str]
    memory: Memory
    nonce: str
    job: JobFiles
    log: Callable[[str], None] = log
    end: Callable[[Mapping[str, str], int], str] = end_machine
    tries: int = 0
    _try_at_s: float = 0.0
    _outcome: str = ""
    _asked: bool = False
    _trying: threading.Thread | None = None

    def start(self, kept: Signed | None) -> None:
        """Take over the newest of the ends that are known already: the kept one, and that of the create."""
        first = settings.first_deadline(self.environment)
        known = kept is not None and self.deadline.accept(kept)
        if first.message and not self.deadline.accept(first) and not known:
            self.log(f"{FIRST_MESSAGE} is not signed for this machine, so it is ignored.")
        self.job.prepare()
        left_s = self.deadline.left_s()
        if left_s is not None and left_s <= 0:
            self._try_at_s = self.deadline.clock() + SETTLE_S
        self.memory.keep(self.nonce, self.deadline.newest)
        if not calls(self.environment):
            self.log(NO_FACILITY)
        if self.memory.problem:
            self.log(self.memory.problem)

    def receive(self, said: Mapping[str, object]) -> bool:
        """Take over what the reporter passed on, if it is a newer signed message."""
        message, signature, at_s = said.get("message"), said.get("signature"), said.get("at_boot_s")
        if not (isinstance(message, str) and isinstance(signature, str) and isinstance(at_s, (int, float))):
            return False
        taken = self.deadline.accept(Signed(message, signature, at_s))
        if taken:
            self.memory.keep(self.nonce, self.deadline.newest)
        return taken

    def pause_s(self) -> float:
        """Return how long nothing need be looked at."""
        left_s = self.deadline.left_s()
        return LOOK_S if left_s is None else min(LOOK_S, max(left_s, 0.5))

    def end_if_due(self) -> None:
        """Begin to end the machine when its deadline passed, and again while it still runs."""
        left_s, now_s = self.deadline.left_s(), self.deadline.clock()
        is_over = left_s is not None and left_s <= GRACE_S - TRIES_S
        if is_over and not self._asked:
            self.job.write_asks(LAST_ASKS)
        self._asked = is_over
        if left_s is None or left_s > 0 or now_s < self._try_at_s:
            return
        if self._trying is not None and self._trying.is_alive():
            return
        self._try_at_s = now_s + RETRY_S
        self.tries += 1
        # A name server that does not answer must not hold up the rest, such as a later end that is just approved.
        self._trying = threading.Thread(target=self._end, args=(self.tries,), daemon=True)
        try:
            self._trying.start()
        except RuntimeError:  # The machine takes no more threads.
            self._trying = None
            self._end(self.tries)

    def _end(self, attempt: int) -> None:
        if attempt == 1:
            self.log("The approved end has passed and this machine still runs, so it ends itself.")
        outcome = self.end(self.environment, attempt) or "The cloud accepted that this machine ends."
        if outcome != self._outcome:
            self.log(outcome)
        self._outcome = outcome


def main(arguments: list[str], /) -> int:
    """Run until the machine is gone."""
    if arguments:
        log("usage: python3 gpu-shopper-agent.pyz")
        return USAGE
    environment = settings.environment_of_machine()
    try:
        signal.signal(signal.SIGUSR1, lambda *_: None)  # Until there is a reporter, it means nothing.
        found = settings.read(environment)
        memory = of_machine(folder_of(environment))
        memory.lock()
    except settings.NotEnrolledError as error:
        log(str(error))
        return CONFIGURATION
    except AgentRunsAlreadyError as error:
        log(str(error))
        return TEMPORARY
    _run(found, memory)
    return 0


def _run(found: MachineSettings, memory: Memory) -> None:
    nonce, kept = memory.read()
    deadline = Deadline(found.instance, found.public_key)
    watchdog = Watchdog(deadline, found.environment, memory, nonce, JobFiles(memory.folder.parent))
    watchdog.start(kept)
    command = [sys.executable, sys.argv[0], "report"]
    begin_with, begun = (lambda: {"nonce": nonce, "seq": deadline.number}), early_reporter.take()
    reporter = ReporterProcess(command, begin_with, boot_s, log, begun)
    signal.signal(signal.SIGUSR1, lambda *_: reporter.pass_on(signal.SIGUSR1))
    while True:
        reporter.keep_running()
        for said in reporter.read(watchdog.pause_s()):
            if watchdog.receive(said):
                reporter.deaths = 0
        watchdog.end_if_due()
