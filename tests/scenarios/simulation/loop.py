"""An event loop in virtual time, without threads: what waits for time waits for nothing, and every run is the same."""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Protocol

from tests.support.clock import SteppedClock

Call = Callable[[], Any]
Act = Callable[[], Awaitable[None]]


class Stepper(Protocol):
    """Who is asked before each step of a task that works for it."""

    def joined(self, task: asyncio.Task[Any]) -> None:
        """A task begins to work for it."""

    def step(self, inner: Coroutine[Any, Any, Any]) -> asyncio.Future[None] | None:
        """Count a step of `inner`. A future holds the task until it is done; CancelledError ends it here."""


#: Whom the running task works for; the tasks that it starts work for the same.
STEPPER: ContextVar[Stepper | None] = ContextVar("stepper", default=None)


class SimulatedClock(SteppedClock):
    """A stepped clock whose sleepers are timers of the loop."""

    async def sleep(self, seconds: float) -> None:
        """Wait on the loop, whose time this clock is."""
        await asyncio.sleep(max(seconds, 0))


class VirtualSelector(selectors.SelectSelector):
    """Waits for nothing: with nothing to do before a timer, the clock is moved to it."""

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Move the clock on by `timeout` seconds. RuntimeError when nothing would ever happen."""
        if timeout is None:
            raise RuntimeError("every task waits for another one, and no timer is set")
        if timeout > 0:
            self._clock.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs on the clock that is given; threads are replaced by a call in place."""

    def __init__(self, clock: SteppedClock) -> None:
        self._virtual = clock
        super().__init__(VirtualSelector(clock))
        self.set_task_factory(_task)

    def time(self) -> float:
        """The clock's seconds."""
        return self._virtual.monotonic()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Call it now."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 # Who waits for the thread gets what it raised.
            done.set_exception(error)
        return done


class SteppedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are counted, and which may be held or ended before any of them."""

    def __init__(self, inner: Coroutine[Any, Any, Any], stepper: Stepper) -> None:
        self._inner = inner
        self._stepper = stepper
        self._held: Call | None = None

    def send(self, value: Any) -> Any:
        """Go on, or with what was held."""
        call, self._held = self._held or (lambda: self._inner.send(value)), None
        return self._go(call)

    def throw(self, *error: Any) -> Any:
        """Go on with an error; what was held is dropped."""
        self._held = None
        return self._go(lambda: self._inner.throw(*error))

    def close(self) -> None:
        """End it."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        """A task only sends and throws."""
        raise TypeError("only a task runs this")

    def _go(self, call: Call) -> Any:
        try:
            wait = self._stepper.step(self._inner)
        except asyncio.CancelledError as crash:
            return self._inner.throw(crash)
        if wait is None:
            return call()
        self._held = call
        return next(wait.__await__())


def waits_in(coro: Any) -> Iterator[str]:
    """Name the functions in which a coroutine waits, the outermost first."""
    while coro is not None:
        code = getattr(coro, "cr_code", None) or getattr(coro, "ag_code", None)
        if code is not None:
            yield code.co_name
        coro = getattr(coro, "cr_await", None) or getattr(coro, "ag_await", None)


def _task(loop: asyncio.AbstractEventLoop, coro: Any, *, context: Context | None = None, **_: Any) -> asyncio.Task[Any]:
    stepper = context.get(STEPPER) if context is not None else STEPPER.get()
    if stepper is None:
        return asyncio.Task(coro, loop=loop, context=context)
    task: asyncio.Task[Any] = asyncio.Task(SteppedCoroutine(coro, stepper), loop=loop, context=context)
    stepper.joined(task)
    return task


@dataclass(kw_only=True)
class Agenda:
    """What is to happen when, and what has happened."""

    clock: SimulatedClock
    agenda: list[tuple[datetime, int, Act]] = field(default_factory=list)
    #: What happened, in order, for people who read why a seed fails.
    history: list[str] = field(default_factory=list)
    began_at: datetime = field(init=False)
    _order: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        self.began_at = self.now

    @property
    def now(self) -> datetime:
        """The true time."""
        return self.clock.now()

    @property
    def elapsed_s(self) -> float:
        """How long this seed has been played, in simulated seconds."""
        return (self.now - self.began_at).total_seconds()

    def note(self, what: str) -> None:
        """Add a line to the history."""
        self.history.append(f"{self.now:%H:%M:%S.%f} {what}")

    def after(self, seconds: float, act: Act) -> None:
        """Do something later."""
        heapq.heappush(self.agenda, (self.now + timedelta(seconds=seconds), next(self._order), act))

    async def do_what_is_due(self) -> None:
        """Do everything whose time has come."""
        while self.agenda and self.agenda[0][0] <= self.now:
            await heapq.heappop(self.agenda)[2]()
