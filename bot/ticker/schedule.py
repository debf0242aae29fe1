"""Schedule jobs on APScheduler, and wake them early by hints.

The scheduler only wakes a job's own loop and never runs the work itself: its executor cancels running work at shutdown,
and work that was claimed must be finished. While time is frozen it does not fire; tests call the jobs directly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from bot import logs
from bot.clock import SystemClock
from ledger.kernel.clock import Clock

#: A job that keeps finding work runs again at once this often; then it waits for its next tick like all others.
ROUNDS_MAX = 50
#: Seconds between two looks at whether the machine's wall clock was set back, and how far back counts.
LOOK_S, SET_BACK_S = 1.0, 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """One job: claim a batch, call one service. `run` returns how many rows it processed; it may be called at any time.

    `every_s` is the pause between two runs; `hints` wake it earlier; `drain` runs it again at once while there is work.
    `width` is how many runs there may be at once, so that one slow reply from outside does not delay everybody's work;
    claims keep them apart, as they keep replicas apart.
    """

    name: str
    run: Callable[[], Awaitable[int]]
    every_s: float
    hints: tuple[asyncio.Event, ...] = ()
    drain: bool = True
    width: int = 1
    #: Called when a hint came, before the wake-up: a job with its own pace may shorten its pause.
    hurry: Callable[[], None] | None = None


@dataclass(slots=True)
class _Loop:
    """One of the loops of a job, with at most one run at a time."""

    job: ScheduledJob
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    rested: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return not self.rested.is_set()

    async def forever(self, stopping: asyncio.Event) -> None:
        self.rested.set()
        while not stopping.is_set():
            await self.wake.wait()
            self.wake.clear()
            self.rested.clear()
            await self.once(stopping)
            self.rested.set()

    async def once(self, stopping: asyncio.Event) -> None:
        """Work until there is nothing left. An error is logged, and the job runs again at its next tick."""
        for _ in range(ROUNDS_MAX):
            if stopping.is_set():
                return
            try:
                with logs.working_on(job=self.job.name):
                    done = await self.job.run()
            except Exception:
                self.failures += 1
                log.exception("%s failed; it is tried again at the next tick", self.job.name)
                return
            self.failures = 0
            if not done or not self.job.drain:
                return
        # There is more work, but the other jobs get their turn first.
        self.wake.set()
        await asyncio.sleep(0)


class _Crew:
    """All loops of one job."""

    def __init__(self, job: ScheduledJob) -> None:
        self.job = job
        self.loops = [_Loop(job) for _ in range(job.width)]
        self.waited_s = 0.0

    def call(self) -> None:
        """Wake one idle loop. When none is idle, the first one runs again as soon as it is."""
        next((loop for loop in self.loops if not loop.busy), self.loops[0]).wake.set()

    def moved(self, passed_s: float) -> None:
        """Wake one loop when the clock, moved by hand, passed the job's pace since the last such wake-up."""
        self.waited_s += passed_s
        if self.waited_s >= self.job.every_s:
            self.waited_s = 0.0
            if self.job.hurry is not None:
                self.job.hurry()
            self.call()

    async def ring(self) -> None:
        """Wake a loop for the scheduler. A coroutine, because the scheduler runs plain functions in its own threads."""
        self.call()


class Ticker:
    """Run jobs until it is stopped. `start` once, then `stop` once."""

    def __init__(self, jobs: Iterable[ScheduledJob], machine: Clock | None = None) -> None:
        self._machine: Clock = machine or SystemClock()
        self._crews = [_Crew(job) for job in jobs]
        self._loops = [loop for crew in self._crews for loop in crew.loops]
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def failing(self) -> tuple[str, ...]:
        """Return the jobs that failed three times in a row, for the health page."""
        return tuple(crew.job.name for crew in self._crews if any(loop.failures >= 3 for loop in crew.loops))

    @property
    def running(self) -> bool:
        """Whether every loop is alive, between `start` and `stop`."""
        return bool(self._tasks) and not self._stopping.is_set() and not any(task.done() for task in self._tasks)

    def start(self) -> None:
        """Start all jobs. Every job runs at once, because there may be work from before."""
        for loop in self._loops:
            self._tasks.append(asyncio.create_task(loop.forever(self._stopping), name=f"job-{loop.job.name}"))
        for crew in self._crews:
            crew.call()
            self._scheduler.add_job(crew.ring, "interval", seconds=crew.job.every_s, id=crew.job.name)
        for hint in {id(hint): hint for crew in self._crews for hint in crew.job.hints}.values():
            wanted = [crew for crew in self._crews if any(hint is mine for mine in crew.job.hints)]
            self._tasks.append(asyncio.create_task(_pass_on(hint, wanted), name="job-hint"))
        self._scheduler.start()
        self._tasks.append(asyncio.create_task(self._keep_pace(), name="job-pace"))

    async def _keep_pace(self) -> None:
        """Run every job and begin its pace anew when the machine's wall clock was set back.

        The scheduler goes by that clock. It would run nothing until the clock shows the old time again.
        """
        ahead_s = self._ahead_s()
        while True:
            await self._machine.sleep(LOOK_S)
            before_s, ahead_s = ahead_s, self._ahead_s()
            if ahead_s < before_s - SET_BACK_S:
                log.warning("the machine's clock was set back by %.0f s; every job runs now", before_s - ahead_s)
                for crew in self._crews:
                    self._scheduler.reschedule_job(crew.job.name, trigger="interval", seconds=crew.job.every_s)
                    crew.call()

    def _ahead_s(self) -> float:
        return self._machine.now().timestamp() - self._machine.monotonic()

    async def pass_over(self, passed_s: float, limit_s: float) -> bool:
        """Run every job whose pace has passed after the clock was moved by `passed_s`, and wait until all are done.

        False when they were not after `limit_s` real seconds; they continue then.
        """
        for crew in self._crews:
            crew.moved(passed_s)
        try:
            async with asyncio.timeout(limit_s):
                while not self._stopping.is_set() and (loop := self._restless()) is not None:
                    await asyncio.sleep(0)  # A loop that was only just woken has not begun yet.
                    await loop.rested.wait()
                return True
        except TimeoutError:
            return False

    def _restless(self) -> _Loop | None:
        return next((one for one in self._loops if one.busy or one.wake.is_set()), None)

    async def stop(self, grace_s: float = 30.0) -> None:
        """Claim no new work, let running work finish for at most `grace_s`, then cancel what is left."""
        self._stopping.set()
        # Only paused: shut down now, it would cancel the calls that are under way and log each as an error.
        if self._scheduler.running:
            self._scheduler.pause()
        for loop in self._loops:
            loop.wake.set()
        working = [task for task in self._tasks if task.get_name() not in ("job-hint", "job-pace")]
        if working:
            _, late = await asyncio.wait(working, timeout=grace_s)
            for task in late:
                log.warning("%s did not finish in %g s; its claim will be taken over", task.get_name(), grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # It shuts down in the event loop's next turn.


async def _pass_on(hint: asyncio.Event, crews: Sequence[_Crew]) -> None:
    """Wake every job that waits for a hint.

    Each gets its own wake-up, so that none takes it from another.
    """
    while True:
        await hint.wait()
        hint.clear()
        for crew in crews:
            if crew.job.hurry is not None:
                crew.job.hurry()
            crew.call()
