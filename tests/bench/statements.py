"""How many SQL statements one rental takes, by the job that runs them: from its request to the digest that has it.

The walk is one plain rental of two hours on SQLite, in this process, against the sandboxes, with production's own table
of jobs. Time goes straight to the next moment: a row is due, a cloud is listed while an instance boots or ends there, a
full hour, and the next day's digest. A job that works on due rows runs when one is due; a job with a pace of its own
runs at the first moment after it. A run that neither wrote a row nor returned work is a look that found nothing: the
service does the same without a rental, so these are counted apart. A minute of a quiet rental, second by second, shows
what they come to. BEGIN, COMMIT and savepoints are not counted, nor is what the walk itself reads.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

from greenlet import getcurrent  # type: ignore[import-untyped] # It has no stubs.
from sqlalchemy import Engine, event

from bot.rules.policy.policy import Policy
from bot.services.approvals import decisions
from bot.services.grants.amendments import amended_terms
from bot.services.runtime.commands import Decide
from bot.ticker.schedule import ScheduledJob
from bot.ticker.sweeps import CloudWatch, jobs
from ledger.core.claims import next_due
from ledger.engine.db import Database
from ledger.kernel.states import NotificationKind, SessionState
from ledger.queries.session_costs import accrued_of_session
from providers.sandbox.clock import SandboxTiming
from tests.bench.databases import Line
from tests.support.clock import START, SteppedClock
from tests.support.databases import copy_sqlite, migrated_sqlite
from tests.support.jobs import WORKS_ON, due_jobs
from tests.support.world import BOB, CAROL, World, facts, world

HOUR = timedelta(hours=1)
AIM = 500
#: Then the digest of the rental's day was due.
DIGEST_AFTER = timedelta(hours=24)
#: Groups with fewer statements are added up in one line.
SHOWN = 6
#: What a look writes about itself: when it looked, and that it has looked for what is old.
_OWN_MARKS = {("UPDATE", "marks"), ("INSERT", "marks"), ("DELETE", "webhook_deliveries"), ("DELETE", "api_answers")}
_NOT_COUNTED = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK", "PRAGMA")


@dataclass(slots=True)
class Statements:
    """Count statements by what runs them, and by the function, kind and table of each."""

    by_job: Counter[str] = field(default_factory=Counter)
    by_function: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    #: Of the looks that found nothing, by job: how many, and their statements.
    looks: Counter[str] = field(default_factory=Counter)
    in_looks: Counter[str] = field(default_factory=Counter)
    _now: list[tuple[str, str, str]] | None = None

    @property
    def total(self) -> int:
        """All of the rental."""
        return self.by_job.total()

    async def count(self, name: str, work: Awaitable[Any]) -> Any:
        """Await some work and count its statements under this name."""
        self._now = []
        try:
            done = await work
            now = self._now
        finally:
            self._now = None
        wrote = any(kind != "SELECT" and (kind, table) not in _OWN_MARKS for _, kind, table in now)
        if wrote or done:
            self.by_job[name] += len(now)
            self.by_function.update(now)
        else:
            self.looks[name] += 1
            self.in_looks[name] += len(now)
        return done

    def note(self, text: str) -> None:
        """Take down one statement, if anything is being counted."""
        if self._now is not None and not text.startswith(_NOT_COUNTED):
            self._now.append((_caller(), *_kind(text)))


@contextmanager
def listening() -> Iterator[Statements]:
    """Count the statements of every engine of this process."""
    found = Statements()

    def note(_: Any, __: Any, text: str, *___: Any) -> None:
        found.note(text)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def _kind(text: str) -> tuple[str, str]:
    """Return a statement's verb and the first table that it names."""
    verb = text.split(None, 1)[0].upper()
    pattern = {"INSERT": r"INTO\s+(\w+)", "UPDATE": r"UPDATE\s+(\w+)"}.get(verb, r"FROM\s+(\w+)")
    named = re.search(pattern, text)
    return verb, named.group(1) if named else ""


def _caller() -> str:
    """Return the function above the ledger that the statement is for; a statement runs in a greenlet of its own."""
    above = getcurrent().parent
    frame: FrameType | None = above.gr_frame if above is not None else sys._getframe()  # SQLAlchemy's own bridge.
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("bot."):
            return f"{module.removeprefix('bot.').removeprefix('services.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return ""


@dataclass
class Walk:
    """Production's jobs on a world, moved from one moment to the next."""

    w: World
    counted: Statements
    table: list[ScheduledJob]
    watches: dict[str, CloudWatch]
    paced: dict[str, datetime] = field(default_factory=dict)
    moments: int = 0

    @classmethod
    def of(cls, w: World, counted: Statements) -> Walk:
        """Take the table of a whole process. A cloud at which nothing was rented is not listed."""
        table = jobs(w.ctx, w.board, None)
        passes = (job for job in table if job.name.startswith("reconcile-"))
        watches = {job.name.removeprefix("reconcile-"): job.run.__self__ for job in passes}  # type: ignore[attr-defined]
        return cls(w, counted, table, watches)

    async def turn(self, *, every: bool = False) -> None:
        """Run what there is to do now, and what that makes due at once."""
        self.moments += 1
        for _ in range(12):
            due = await due_jobs(self.w.ctx.db, self.w.clock.now())
            names = {job.name for job in self.table if self._wanted(job, due, every=every)}
            every = False
            if not names:
                return
            for job in self.table:
                if job.name in names:
                    await self._run(job)

    def _wanted(self, job: ScheduledJob, due: set[str], *, every: bool) -> bool:
        is_rung = any(hint.is_set() for hint in job.hints)
        if job.name in WORKS_ON:
            return every or job.name in due
        if job.name.startswith("reconcile-"):
            return self._is_listed(job.name.removeprefix("reconcile-"), is_rung=is_rung)
        return job.name not in self.paced or self.paced[job.name] <= self.w.clock.now() or is_rung

    def _is_listed(self, cloud: str, *, is_rung: bool) -> bool:
        if not self.w.clouds[cloud].instances():
            return False
        if is_rung:
            self.watches[cloud].hurry()
        next_s = self.watches[cloud]._next_s  # Its pace is its own.
        return next_s is None or next_s <= self.w.clock.monotonic()

    async def _run(self, job: ScheduledJob) -> None:
        self.paced[job.name] = self.w.clock.now() + timedelta(seconds=job.every_s)
        for hint in job.hints:
            hint.clear()
        await self.counted.count(job.name, job.run())

    async def until(self, end: datetime, *, looks: bool = False) -> None:
        """Go from moment to moment until this time. `looks`: stop at every listing of a quiet cloud, too."""
        while (now := self.w.clock.now()) < end:
            hour = now.replace(minute=0, second=0, microsecond=0) + HOUR
            listed = [at for cloud in self.watches if (at := self._listed_at(cloud, looks=looks)) is not None]
            soonest = await next_due(self.w.ctx.db, now)
            to = min([end, hour, *listed, *([soonest] if soonest else [])])
            self.w.clock.advance(max(to, now + timedelta(seconds=1)) - now)
            await self.turn()

    def _listed_at(self, cloud: str, *, looks: bool) -> datetime | None:
        """When a cloud is to be listed next; None for one that is quiet."""
        watch = self.watches[cloud]
        next_s, before_s = watch._next_s, watch._looked_s
        if next_s is None or before_s is None or not self.w.clouds[cloud].instances():
            return None
        if not looks and next_s - before_s >= self.w.ctx.timing.sweep_s:
            return None
        # Seconds are rounded when they become a timedelta, and it must not end before they have passed.
        wait = timedelta(seconds=next_s - self.w.clock.monotonic()) + timedelta.resolution
        return self.w.clock.now() + wait


async def rental(w: World, counted: Statements) -> Walk:
    """Walk one rental, and check that each stage of it was reached."""
    walk = Walk.of(w, counted)
    await walk.turn()
    reply = await counted.count("submit", w.ask())
    request_id = str(reply.data["request_id"])
    await walk.turn()
    token = await w.token(request_id)
    seen = amended_terms((view := await w.view(request_id)).request, view.approvals).digest
    decided = await counted.count("approve", decisions.decide(w.ctx, Decide(token, facts(BOB), seen=seen)))
    _must(decided.code == "approved", "the request is not approved")
    await walk.turn()
    await walk.until(w.clock.now() + timedelta(minutes=10))
    view = await w.view(request_id)
    _must(view.session is not None and view.session.state is SessionState.RUNNING, "the session does not run")
    await walk.until(w.clock.now() + 3 * HOUR)
    view = await w.view(request_id)
    session = view.session
    _must(session is not None and session.state is SessionState.TERMINATED, "the session did not end")
    w.clock.advance(DIGEST_AFTER)
    await walk.turn()
    async with w.ctx.db.read() as tx:
        booked = await accrued_of_session(tx, session.id if session else "")
    _must(abs(booked - w.bill()) <= w.bill() * Decimal("0.01"), f"{booked} is booked, the cloud bills {w.bill()}")
    _must(str(NotificationKind.DIGEST) in w.board.kinds(), "no digest was sent")
    return walk


async def quiet_minute(w: World, counted: Statements) -> int:
    """Run every job at its own pace for a minute, once the first rental runs; return the number of statements."""
    await w.running()
    walk = Walk.of(w, counted)
    await walk.turn(every=True)
    before = counted.total + counted.in_looks.total()
    for _ in range(60):
        w.clock.advance(w.ctx.timing.tick_s)
        await walk.turn(every=True)
    return counted.total + counted.in_looks.total() - before


def _must(holds: bool, otherwise: str) -> None:  # It reads as an assertion.
    if not holds:
        raise RuntimeError(f"{otherwise}, so the number of statements says nothing")


@asynccontextmanager
async def _ledger() -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        db, clock = Database(copy_sqlite(migrated_sqlite(folder), folder)), SteppedClock(START)
        policy = replace(Policy(approvers=(BOB.id, CAROL.id)), digest_weekly="")
        try:
            async with world(db, clock, policy=policy, sandbox=SandboxTiming.quick()) as w:
                yield w
        finally:
            await db.close()


async def report() -> AsyncIterator[Line]:
    """Return the total, its groups, and the functions that run most of them."""
    with listening() as counted:
        async with _ledger() as w:
            walk = await rental(w, counted)
        yield f"one rental, in {walk.moments} moments", str(counted.total), f"aim ≤ {AIM}"
        for job, number in counted.by_job.most_common():
            yield f"  {job}", str(number), ""
        few = 0
        for (caller, kind, table), number in counted.by_function.most_common():
            if number >= SHOWN:
                yield f"  {caller}", str(number), f"{kind} {table}"
            else:
                few += number
        yield f"  functions with fewer than {SHOWN}", str(few), ""
        looks = sum(counted.looks.values())
        yield f"{looks} looks of these moments that found nothing", str(counted.in_looks.total()), "not in the total"
    with listening() as counted:
        async with _ledger() as w:
            yield "a minute of a quiet rental, all jobs at their pace", str(await quiet_minute(w, counted)), ""
