"""The functions in which a step can be half done, and the hook that kills a process at one of their awaits.

The test and the process share a small file in memory: the test writes where the process has to die, and the process
reads it at each step of its tasks. Nothing of this is in the program; `tests.support.process_group` installs the hook
in a process that it forked.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
from collections.abc import Coroutine
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.scenarios.simulation.loop import SteppedCoroutine

ROOT = Path(__file__).resolve().parents[3]
#: Armed or not, where, and at which await.
ROOM = 256


class Phase(StrEnum):
    """What people wait for while the process is killed."""

    ASK = "ask"
    APPROVE = "approve"
    EXTEND = "extend"
    END = "end"
    #: After a kill in any of them: what the next process does first.
    RECOVER = "recover"


@dataclass(frozen=True, slots=True)
class Failpoint:
    """A function of the program by the end of its file's path and its name."""

    path: str
    function: str
    phase: Phase

    def __str__(self) -> str:
        """Write it as the table names it."""
        return f"{self.path.removesuffix('.py')}.{self.function}"


def _in(phase: Phase, path: str, *functions: str) -> list[Failpoint]:
    return [Failpoint(f"bot/{path}.py", function, phase) for function in functions]


FAILPOINTS = (
    *_in(Phase.ASK, "slack/guard", "__call__"),
    *_in(Phase.ASK, "slack/worker", "_work"),
    *_in(Phase.ASK, "services/requests/quoting", "_quote"),
    *_in(Phase.ASK, "services/outbox/dispatch", "_deliver"),
    *_in(Phase.APPROVE, "slack/guard", "__call__"),
    *_in(Phase.APPROVE, "slack/actions", "_approve"),
    *_in(Phase.APPROVE, "services/approvals/decisions", "decide"),
    *_in(Phase.APPROVE, "services/instances/launch", "_load", "_reprice", "_commit_to_send", "_create", "_order"),
    *_in(Phase.APPROVE, "services/instances/transitions", "adopt"),
    *_in(Phase.APPROVE, "services/instances/reconcile", "_present"),
    *_in(Phase.APPROVE, "services/instances/readiness", "make_ready"),
    *_in(Phase.APPROVE, "services/outbox/dispatch", "_deliver"),
    *_in(Phase.EXTEND, "services/sessions/extension", "extend", "grant"),
    *_in(Phase.END, "services/sessions/service", "_end"),
    *_in(Phase.END, "services/instances/termination", "_terminate", "_acknowledged"),
    *_in(Phase.END, "services/instances/reconcile", "_absent"),
    *_in(Phase.END, "services/instances/transitions", "gone", "settle"),
    *_in(Phase.END, "services/billing/metering", "_accrue_together", "accrue_rest"),
    *_in(Phase.END, "services/outbox/dispatch", "_deliver"),
    *_in(Phase.RECOVER, "slack/worker", "recover"),
    *_in(Phase.RECOVER, "services/instances/unknown_outcome", "_resolve", "give_up"),
    *_in(Phase.RECOVER, "services/instances/reconcile", "_present"),
    *_in(Phase.RECOVER, "services/outbox/dispatch", "_deliver"),
)


class Arm:
    """Where the process has to die next, and by which signal, in a file that both have in memory."""

    def __init__(self, path: Path, how: signal.Signals = signal.SIGKILL) -> None:
        self._how = how
        if not path.exists():
            path.write_bytes(b"\0" * ROOM)
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), ROOM)

    def set(self, point: Failpoint, awaits: int) -> None:
        """Kill it at this many steps inside the function from now."""
        said = f"{point.path}|{point.function}|{awaits}|{self._how.value}|".encode().ljust(ROOM - 1, b"\0")
        self._shared[0] = 0
        self._shared[1:ROOM] = said
        self._shared[0] = 1

    def clear(self) -> None:
        """Spare it."""
        self._shared[0] = 0

    @property
    def is_set(self) -> bool:
        """Whether a process has to die."""
        return self._shared[0] == 1

    def read(self) -> tuple[str, str, int, int]:
        """The end of the path, the function, the number of awaits, and the signal."""
        path, function, awaits, how, *_ = self._shared[1:ROOM].decode().split("|")
        return path, function, int(awaits), int(how)


class Killer:
    """Counts the steps of all tasks inside the function, and ends the process at the last of them."""

    def __init__(self, arm: Arm) -> None:
        self._arm = arm
        self._now = ("", "", 0, 0)
        self._left = 0

    def joined(self, task: asyncio.Task[Any]) -> None:
        """Every task counts."""

    def step(self, inner: Coroutine[Any, Any, Any]) -> None:
        """A task goes on."""
        if not self._arm.is_set:
            self._now = ("", "", 0, 0)
            return
        asked = self._arm.read()
        if asked != self._now:
            self._now, self._left = asked, asked[2]
        if _is_inside(inner, asked[0], asked[1]):
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), asked[3])


class Watched(SteppedCoroutine):
    """Its steps are counted; for those who look at it, it is the coroutine itself."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def install(loop: asyncio.AbstractEventLoop, path: Path) -> None:
    """Let every task that begins from now on be counted."""
    killer = Killer(Arm(path))

    def task(running: asyncio.AbstractEventLoop, coro: Any, *, context: Context | None = None, **_: Any) -> Any:
        return asyncio.Task(Watched(coro, killer), loop=running, context=context)

    loop.set_task_factory(task)


def _is_inside(coro: Any, path: str, function: str) -> bool:
    while coro is not None:
        code = getattr(coro, "cr_code", None) or getattr(coro, "ag_code", None)
        if code is not None and code.co_name == function and code.co_filename.endswith(path):
            return True
        coro = getattr(coro, "cr_await", None) or getattr(coro, "ag_await", None)
    return False
