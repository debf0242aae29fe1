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
from dataclasses import dataclass
from pathlib import Path

from bot.agent.job_process import CommandFolder, content
from bot.agent.memory import folder_of, of_machine
from bot.agent.startup.plan import BYTES, DONE, FAILED, RUNNING, SKIPPED, WAITING, Plan, StartupProgress, Step

#: A script ends with this where it has nothing to do here; it is no failure.
LEFT_OUT = 77
#: What `timeout` answers for a command that took too long.
TOO_LONG = 124
PLAN, STEPS, LOG = "startup_plan.json", "startup_steps.json", "startup.log"


@dataclass
class Runner:
    """The steps of one plan. `folder` is the agent's, where their log and the job lie."""

    plan: Plan
    progress: StartupProgress
    folder: Path
    clock_s: Callable[[], float] = time.monotonic

    def run(self) -> None:
        """Run every step that is not over. One that fails stops only those that need it."""
        for step in self.plan.steps:
            if self.progress.steps[step.name].state != WAITING:
                continue
            if any(self.progress.steps[one].state != DONE for one in step.needs if one in self.progress.steps):
                self.progress.note(step.name, state=SKIPPED)
                continue
            begun_s = self.clock_s()
            self.progress.note(step.name, state=RUNNING, began_s=begun_s)
            code = self._start_job(step) if step.job else self._run(step)
            state = DONE if code == 0 else SKIPPED if code == LEFT_OUT else FAILED
            self.progress.note(step.name, state=state, seconds=int(self.clock_s() - begun_s), exit_code=code)

    def environment(self) -> dict[str, str]:
        """Return the variables of a step: the machine's, and the plan's. The agent's own stay with the agent."""
        own = {key: value for key, value in os.environ.items() if not key.startswith("GPU_SHOPPER_")}
        return own | dict(self.plan.environment) | {"STARTUP_FOLDER": str(self.folder)}

    def _run(self, step: Step) -> int:
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

    def _start_job(self, step: Step) -> int:
        """Start the job as a process of its own that no dropped connection ends; once only, whatever restarts."""
        place = CommandFolder(self.folder / "job", "job.log")
        known = place.read()
        name = f"{self.plan.id}-{step.name}"
        if known is not None and (known.id == name or known.is_running):
            return 0
        try:
            state = place.start(name, ["/bin/sh", "-c", step.script], self.folder, self.environment())
        except (OSError, subprocess.TimeoutExpired) as error:
            with (self.folder / LOG).open("a") as log:
                log.write(f"--- {step.name}\nThe job can't be started: {error}\n")
            return 127
        return state.exit_code or 0


def main(_arguments: list[str], /) -> int:
    """Run the kept plan, unless another process runs it."""
    memory = of_machine(folder_of(os.environ))
    try:
        lock = os.open(memory.folder / "startup.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        plan = Plan.of(json.loads(content(memory.folder / PLAN, BYTES)))
    except (OSError, ValueError, RecursionError) as error:
        print(f"gpu-shopper-agent: No start-up runs: {error}", file=sys.stderr, flush=True)
        return 1
    if plan is None:
        return 1
    folder = memory.folder.parent
    progress = StartupProgress.read(folder / STEPS)
    progress.begin(plan, memory.boot_id)
    Runner(plan, progress, folder).run()
    return 0
