"""Run the steps of the plan, one after the other, in a process of its own, so that no check-in waits for them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bot.agent.credentials import CRED_FILE, Credentials, of_this_machine
from bot.agent.job_process import CommandFolder, content
from bot.agent.memory import of_machine
from bot.agent.own_folder import folder_of
from bot.agent.queue.order import FOLDER as QUEUE
from bot.agent.queue.order import QueueOrder
from bot.agent.queue.process import QueueProcess
from bot.agent.retry_policy import RetryPolicy
from bot.agent.startup.plan import (
    BYTES,
    DONE,
    FAILED,
    LOG,
    PLAN,
    RUNNING,
    SKIPPED,
    STEPS,
    WAITING,
    StartupProgress,
    read_plan,
)
from bot.agent.startup.server import TOO_LONG, ModelServer
from bot.wire.queue import PlannedQueue
from bot.wire.startup_plan import LEFT_OUT, PlannedServer, PlannedStep, StartupPlan

#: The exit code of a step whose secrets did not come: they are not stored any more, or no answer came for so long.
NO_SECRET, SECRETS_WAIT_S, LOOK_S = 78, 900.0, 0.5
#: A model server starts without a shell. Where it has secrets, these words set them first.
WITH_SECRETS = ("/bin/sh", "-c", '. "$CRED_FILE" || exit; exec "$@"', "sh")


@dataclass
class Runner:
    """The steps of one plan. `folder` is the agent's, where their log and the job lie."""

    plan: StartupPlan
    progress: StartupProgress
    folder: Path
    clock_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    credentials: Credentials | None = None
    #: The process of the job's queue, kept so that its end is collected.
    _queue: QueueProcess | None = None

    def run(self) -> None:
        """Run every step that is not over. One that fails stops only those that need it."""
        for step in self.plan.steps:
            if self.progress.steps[step.name].state != WAITING:
                continue
            if any(self.progress.steps[one].state != DONE for one in step.needs if one in self.progress.steps):
                self.progress.note(step.name, state=SKIPPED)
                continue
            missing = self._missing_secrets(step)
            begun_s = self.clock_s()
            self.progress.note(step.name, state=RUNNING, began_s=begun_s)
            code = NO_SECRET if missing else self._code(step)
            state = DONE if code == 0 else SKIPPED if code == LEFT_OUT else FAILED
            self.progress.note(step.name, state=state, seconds=int(self.clock_s() - begun_s), exit_code=code)

    def environment(self) -> dict[str, str]:
        """Return the variables of a step: the machine's, and the plan's. The agent's own stay with the agent."""
        own = {key: value for key, value in os.environ.items() if not key.startswith("GPU_SHOPPER_")}
        if self.credentials is not None:
            own[CRED_FILE] = str(self.credentials.path)
        return own | self.plan.environment | {"STARTUP_FOLDER": str(self.folder)}

    def _missing_secrets(self, step: PlannedStep) -> bool:
        """Wait until an answer had the step's secrets; say in the log which of them it lacked."""
        if not step.secrets or self.credentials is None:
            return False
        until_s = self.clock_s() + SECRETS_WAIT_S
        while (came := self.credentials.names()) is None and self.clock_s() < until_s:
            self.sleep(LOOK_S)
        missing = [name for name in step.secrets if name not in (came or ())]
        if missing:
            gone = "its owner deleted it, or the session was transferred"
            why = gone if came is not None else "GPU Shopper did not answer"
            with (self.folder / LOG).open("a") as log:
                log.write(f"--- {step.name}\nThe secret {missing[0]} did not come: {why}. The step is not started.\n")
        return bool(missing)

    def _run(self, step: PlannedStep) -> int:
        with (self.folder / LOG).open("ab") as log:
            log.write(f"--- {step.name}\n".encode())
            log.flush()
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", step.script],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    env=self.environment(),
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"The step can't be started: {error}\n".encode())
                return 127
            try:
                return process.wait(step.limit_s)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                log.write(f"The step took longer than {step.limit_s:.0f} s and was ended.\n".encode())
                return TOO_LONG

    def _code(self, step: PlannedStep) -> int:
        if step.serve is not None:
            return self._serve(step, step.serve)
        return self._start_job(step) if step.job else self._run(step)

    def _serve(self, step: PlannedStep, server: PlannedServer) -> int:
        """Start the model server as a process of its own, with the stack's programs first in its PATH, and ask it."""
        with (self.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"--- {step.name}\n")

            def say(text: str) -> None:
                log.write(f"{text}\n")
                log.flush()

            own = self.environment()
            own["PATH"] = f"{self.folder}/venv/bin:{own.get('PATH', os.defpath)}"
            if step.secrets:
                server = replace(server, argv=(*WITH_SECRETS, *server.argv))
            return ModelServer(self.folder, f"{self.plan.id}-{step.name}", server, own, say).start_and_ask(step.limit_s)

    def _start_job(self, step: PlannedStep) -> int:
        """Start the job as a process of its own that no dropped connection ends; once only, whatever restarts."""
        if step.queue is not None:
            return self._start_queue(step, step.queue)
        place = CommandFolder(self.folder / "job", "job.log")
        known = place.read()
        name = f"{self.plan.id}-{step.name}"
        if known is not None and (known.id == name or known.is_running):
            return 0
        try:
            words, asks = ["/bin/sh", "-c", step.script], self.folder / "asks"
            retry = RetryPolicy(step.attempts, step.retry_codes)
            state = place.start(name, words, self.folder, self.environment(), retry, asks)
        except (OSError, subprocess.TimeoutExpired) as error:
            with (self.folder / LOG).open("a") as log:
                log.write(f"--- {step.name}\nThe job can't be started: {error}\n")
            return 127
        return state.exit_code or 0

    def _start_queue(self, step: PlannedStep, queue: PlannedQueue) -> int:
        """Keep the queue's order and start its process, which the reporter starts again where it was ended."""
        name = f"{self.plan.id}-{step.name}"
        # The rest is in the environment of the queue's process, and is written nowhere.
        own = {key: value for key, value in self.environment().items() if os.environ.get(key) != value}
        try:
            retry = RetryPolicy(step.attempts, step.retry_codes)
            QueueOrder(name, queue, step.script, own, step.secrets, retry).keep(self.folder / QUEUE)
        except OSError as error:
            with (self.folder / LOG).open("a") as log:
                log.write(f"--- {step.name}\nThe queue can't be kept: {error}\n")
            return 127
        self._queue = QueueProcess(self.folder / QUEUE)
        self._queue.keep_running()
        return 0


def main(_arguments: list[str], /) -> int:
    """Run the kept plan, unless another process runs it."""
    memory = of_machine(folder_of(os.environ))
    try:
        lock = os.open(memory.folder / "startup.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        plan = read_plan(json.loads(content(memory.folder / PLAN, BYTES)))
    except (OSError, ValueError, RecursionError) as error:
        print(f"gpu-shopper-agent: No start-up runs: {error}", file=sys.stderr, flush=True)
        return 1
    if plan is None:
        return 1
    folder = memory.folder.parent
    progress = StartupProgress.read(folder / STEPS)
    progress.begin(plan, memory.boot_id)
    Runner(plan, progress, folder, credentials=of_this_machine(os.environ, memory.boot_id)).run()
    return 0
