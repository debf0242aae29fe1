"""One simulated process of the service: its tasks' steps are counted, and it may be killed or paused at any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bot.services.runtime.ports import Delivered, DeliveryFailed
from ledger.models import Notification
from tests.scenarios.month.board import Board
from tests.scenarios.month.life import Life, Switch
from tests.scenarios.simulation.connection import Connections
from tests.scenarios.simulation.loop import STEPPER, waits_in
from tests.support.clock import MachineClock

T = TypeVar("T")


class Interrupted(Exception):
    """The process was killed, or stands still, before the work was done."""


@dataclass(eq=False)
class Process:
    """A replica. `life` is set when it starts."""

    number: int
    machine: MachineClock
    #: Whether any process holds the ledger's write lock: no process is paused then, because a real one has it for
    #: itself for a time that PostgreSQL bounds.
    is_writing: Callable[[], bool]
    connections: Connections = field(default_factory=Connections)
    switch: Switch = field(default_factory=Switch)
    is_dead: bool = False
    steps: int = 0
    _life: Life | None = None
    _tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    _countdown: int | None = None
    #: The function in which steps are counted down; "" counts every step.
    _aim: str = ""
    _pauses: bool = False
    _held: list[asyncio.Future[None]] | None = None
    #: Done while it is paused or dead.
    _stopped: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    #: The turn of its jobs that is under way.
    turn: asyncio.Task[Any] | None = None

    @property
    def life(self) -> Life:
        """Its object graph."""
        assert self._life is not None
        return self._life

    @life.setter
    def life(self, life: Life) -> None:
        self._life = life

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self._held is not None

    @property
    def works(self) -> bool:
        """Whether it can be given work."""
        return not self.is_dead and not self.is_paused

    def kill_after(self, steps: int, aim: str = "") -> None:
        """Kill it that many steps from now, or at that many steps inside the function `aim`."""
        self._countdown, self._pauses, self._aim = steps, False, aim

    def pause_after(self, steps: int, aim: str = "") -> None:
        """Stop it that many steps from now, or at that many steps inside the function `aim`, until `resume`."""
        self._countdown, self._pauses, self._aim = steps, True, aim

    def resume(self) -> None:
        """Let it go on where it stopped."""
        held, self._held = self._held or [], None
        if self._stopped.done() and not self.is_dead:
            self._stopped = asyncio.get_running_loop().create_future()
        for one in held:
            if not one.done():
                one.set_result(None)
        if self._pauses:
            self._countdown = None

    def spare(self) -> None:
        """Neither kill nor pause it any more."""
        self._countdown = None

    def joined(self, task: asyncio.Task[Any]) -> None:
        """One of its tasks begins."""
        self._tasks[task] = None

    def step(self, inner: Coroutine[Any, Any, Any]) -> asyncio.Future[None] | None:
        """One of its tasks goes on: it is held while the process is paused, and ends here when it is killed."""
        if self.is_dead:
            return None
        self.steps += 1
        if self._countdown is not None and (not self._aim or self._aim in waits_in(inner)):
            self._countdown -= 1
            if self._countdown <= 0:
                self._trouble()
        if self._held is None:
            return None
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(wait)
        return wait

    def _trouble(self) -> None:
        if self._pauses:
            if not self.is_writing():
                self._countdown, self._held = None, []
                self._stop()
            return
        self._countdown = None
        self.cut()
        raise asyncio.CancelledError

    def cut(self) -> None:
        """It is dead: from here on nothing that it does has an effect outside."""
        self.is_dead, self._held = True, None
        self.connections.cut()
        self.switch.app = None
        self._stop()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Let it do something."""
        context = copy_context()
        context.run(STEPPER.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def _stop(self) -> None:
        if not self._stopped.done():
            self._stopped.set_result(None)

    def ends(self, task: asyncio.Task[Any]) -> list[asyncio.Future[Any]]:
        """What ends a wait for the task: its end, or that the process is paused or dead. Empty if one is so now."""
        return [] if task.done() or self._stopped.done() else [task, self._stopped]

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it and return what came of it. `Interrupted` when nobody will ever know."""
        task = self.start(work)
        await settled({self: task})
        if self.is_dead or not task.done():
            raise Interrupted
        return task.result()

    async def bury(self) -> None:
        """End what is left of a killed process."""
        for _ in range(50):
            left = [task for task in self._tasks if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1)
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.exception()  # Nobody asks a dead process what went wrong.
        self._tasks.clear()
        self.life.rows.close()

    def forget_done(self) -> None:
        """Keep only the tasks that go on."""
        self._tasks = {task: None for task in self._tasks if not task.done()}


async def settled(tasks: Mapping[Process, asyncio.Task[Any]]) -> None:
    """Wait until each process has done its task, or is paused or dead."""
    while waits := [end for process, task in tasks.items() for end in process.ends(task)]:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)


class Door(Board):
    """A process's way to the board: nothing comes from a dead one, and each delivery can be cut in two."""

    def __init__(self, board: Board, process: Process) -> None:
        super().__init__(board.clock, board.on_shown)
        self._board = board
        self._process = process

    async def deliver(self, notification: Notification) -> Delivered:
        """Show it."""
        await asyncio.sleep(0)
        if self._process.is_dead:
            raise DeliveryFailed("the process is dead")
        there = await self._board.deliver(notification)
        await asyncio.sleep(0)
        return there
