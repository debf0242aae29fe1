"""The work behind an acknowledged message: a few at a time, repeated after a failure, taken over after a crash.

The queue is only in memory because every message in it is a row in the inbox: what is lost with the process is
claimed again when its lease ends.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from bot.slack.blocks.private_answer import broken
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.inbound import InboundKind, InboundMessage
from ledger.core.claims import claim, release
from ledger.kernel.states import InboxState
from ledger.models import Inbox

TRIES_MAX: Final = 5
FIRST_PAUSE_S: Final = 2
BATCH: Final = 16
OURS: Final = frozenset(InboundKind)

log = logging.getLogger(__name__)


class Worker:
    """Runs `process` on jobs; `process` is idempotent, because a crash between its end and the mark repeats it."""

    def __init__(self, desk: HandlerContext, process: Callable[[HandlerContext, HandlerJob], Awaitable[None]]) -> None:
        self._desk = desk
        self._process = process
        self._queue: asyncio.PriorityQueue[tuple[int, int, HandlerJob]] = asyncio.PriorityQueue()
        self._order = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def backlog(self) -> int:
        """How many messages wait in memory."""
        return self._queue.qsize()

    async def idle(self) -> None:
        """Wait until everything that was queued has been worked on."""
        await self._queue.join()

    def submit(self, job: HandlerJob, *, urgent: bool) -> None:
        """Queue a job; `urgent` ones open a dialog and have seconds. A full queue leaves it to `recover`."""
        if self._queue.qsize() >= self._desk.settings.queue_max:
            log.warning("the queue is full; %s waits for its lease to end", job.message.kind)
            return
        self._queue.put_nowait((0 if urgent else 1, next(self._order), job))

    def start(self) -> None:
        """Start the workers in the running loop."""
        self._tasks = [
            asyncio.create_task(self._work(), name="slack-worker") for _ in range(self._desk.settings.workers)
        ]

    async def stop(self, patience_s: float = 5.0) -> None:
        """Finish what is queued if that is quick; whatever remains is claimed again by the next process."""
        if self._tasks:
            try:
                async with asyncio.timeout(patience_s):
                    await self._queue.join()
            except TimeoutError:
                log.warning("%d messages are left to the next process", self._queue.qsize())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def recover(self, now: datetime) -> int:
        """Claim and process rows whose process died, or whose next try is due. Returns how many were worked on."""
        lease = timedelta(seconds=self._desk.ctx.timing.claim_ttl_s)
        held = await claim(self._desk.ctx.db, Inbox, now=now, states={InboxState.NEW}, limit=BATCH, lease=lease)
        jobs: list[HandlerJob] = []
        for one in held:
            async with self._desk.ctx.db.read() as tx:
                row = await tx.get_one(Inbox, one.row_id)
            if row.kind in OURS:
                jobs.append(HandlerJob(one.row_id, one, InboundMessage.from_json({**row.body, "kind": row.kind})))
            else:
                async with self._desk.ctx.db.write() as tx:
                    await release(tx, Inbox, one, due_at=now + lease)
        await asyncio.gather(*(self.run(job) for job in jobs))
        return len(jobs)

    async def run(self, job: HandlerJob) -> None:
        """Process one job and mark its row, or note the failure on it."""
        try:
            await self._process(self._desk, job)
        except Exception as error:
            incident = secrets.token_hex(4)
            log.exception("incident %s: a message of kind %s was not processed", incident, job.message.kind)
            await self._failed(job, incident, type(error).__name__)
            return
        self._desk.ctx.inbox.finish(job.key)

    async def _work(self) -> None:
        while True:
            rank, _, job = await self._queue.get()
            try:
                if rank:  # A dialog that somebody waits for does not step aside.
                    await self._desk.ctx.pressure.ease()
                if not self._is_late(job):
                    await self.run(job)
            except Exception:
                log.exception("the failure of a message could not be noted; its lease ends and it is tried again")
            finally:
                self._queue.task_done()

    def _is_late(self, job: HandlerJob) -> bool:
        """A job that waited for its whole lease belongs to whoever claimed the row since."""
        waited_s = self._desk.ctx.clock.monotonic() - job.since
        return waited_s >= self._desk.ctx.timing.claim_ttl_s

    async def _failed(self, job: HandlerJob, incident: str, what: str) -> None:
        ctx = self._desk.ctx
        now = ctx.clock.now()
        async with ctx.db.write() as tx:
            row = await tx.get_one(Inbox, job.key)
            tries = row.tries + 1
            last = tries >= TRIES_MAX
            pause = timedelta(seconds=FIRST_PAUSE_S * 4 ** (tries - 1))
            mine = await release(
                tx,
                Inbox,
                job.claim,
                due_at=None if last else now + pause,
                state=InboxState.FAILED if last else InboxState.NEW,
                tries=tries,
                error=f"{incident} {what}",
            )
        if mine and last:
            await self._desk.say(job, broken(incident))
