"""Keep the plan that came with a check-in, start its runner, and report how far its steps are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.agent.job_process import content, own_program, write_json
from bot.agent.machine import plain
from bot.agent.startup.plan import BYTES, FAILED, LOG, PLAN, STEPS, StartupProgress, read_plan
from bot.wire.checkin import MOST_STEPS


@dataclass
class Startup:
    """The start-up of one machine. `folder` is the agent's own, which only its user reads."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    clock_s: Callable[[], float] = time.monotonic
    _runner: subprocess.Popen[bytes] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the plan came, which may be an empty one."""
        return (self.folder / PLAN).exists()

    @property
    def is_running(self) -> bool:
        """Whether the runner that this process started runs."""
        return self._runner is not None and self._runner.poll() is None

    def take(self, said: object) -> None:
        """Keep the plan of an answer and start it. An empty one says that nothing is to be done."""
        if not isinstance(said, dict) or self.is_known or (said and read_plan(said) is None):
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(self.folder / PLAN, said)
        except OSError:
            return  # A full disk; the next answer has it again.

    def keep_running(self) -> None:
        """Start the runner once in the life of this process; one that runs already makes the new one end."""
        if self._runner is not None:
            self._runner.poll()  # An ended one leaves the table of processes.
            return
        try:
            if not json.loads(content(self.folder / PLAN, BYTES)):
                return
            command = [sys.executable, *own_program(), "start-up"]
            own = os.environ | dict(self.environment)
            self._runner = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=own, start_new_session=True
            )
        except (OSError, ValueError, RecursionError):
            return

    def report(self) -> dict[str, Any]:
        """Return what a check-in says of the steps; nothing while none was begun."""
        steps = list(StartupProgress.read(self.folder.parent / STEPS).steps.values())[:MOST_STEPS]
        if not steps:
            return {}
        now_s = self.clock_s()
        return {"steps": [one.report(now_s) | {"name": plain(one.name, 40)} for one in steps]}

    def logs(self) -> tuple[Path, ...]:
        """Return the log of the steps where one of them failed."""
        steps = StartupProgress.read(self.folder.parent / STEPS).steps.values()
        return (self.folder.parent / LOG,) if any(one.state == FAILED for one in steps) else ()
