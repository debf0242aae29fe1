"""One life of the service after another on one ledger: the object graph is dropped, and built anew from the database.

The jobs are production's own table. Time jumps to whatever comes next: a row that is due, a cloud that is to be looked
at, a job with a pace of its own, or something that a person or a fault does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bot import wiring
from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.values.labels import LabelKey
from bot.services.runtime.context import Context
from bot.ticker.schedule import ScheduledJob
from bot.ticker.sweeps import CloudWatch, jobs
from ledger.engine.db import Database
from ledger.kernel.clock import Clock
from providers.rate_limits import LocalPacer
from providers.sandbox.engine import SandboxCloud
from tests.scenarios.month.board import Board
from tests.scenarios.month.due import DueRows
from tests.support.jobs import WORKS_ON
from tests.support.serving import adapters

CHANNEL = "C0GPU"
LABELS = LabelKey("mnth", b"a label key for tests only")
#: Shortest jump: the pause of production's ticker.
TICK = timedelta(seconds=1)
#: A job that did nothing about a row that is due, because its clock is wrong or its cloud must wait, is no reason to
#: jump by less than this.
RETRY = timedelta(seconds=30)
#: How often a job with a pace of its own runs here, in seconds. What a month would run a million times is run less
#: often, and no more seldom than what is promised about it allows.
PACE_S: Mapping[str, float] = {
    "clock-check": 600,
    "overspend": 300,
    "machine-keys": 600,
    "market-runpod": 21600,
    "market-vast": 21600,
    "transfers": 600,
    "resumes": 300,
    "retained-disks": 600,
    "relocations": 600,
    "cheaper-machines": 21600,
    "node-sets": 600,
    "shared-queues": 600,
    "host-keys": 14400,
    "idle": 140,
    "incidents": 600,
    "graces": 300,
    "reminders": 1800,
    "metering": 600,
    "open-spend": 600,
    "rollup": 600,
    "event-order": 600,
    "hash-chain": 10800,
    "digests": 1800,
    "true-up": 7200,
    "cost-ledger": 21600,
    "webhook-log": 21600,
    "idempotency-keys": 21600,
    "cleanup": 21600,
    "webhooks": 3600,
    "webhook-deliveries": 3600,
    "run-records": 3600,
}
#: Jobs that run when another one calls them, and never else: each look at a machine that boots calls its check.
ON_CALL = frozenset({"gpu-checks"})
#: A cloud where nothing is held is listed this often, because nothing is to be seen there.
IDLE_S = 1200.0


class Switch:
    """Where the machines' check-ins go: to the API of the life that runs, and nowhere between two lives."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        await (self.app or PlainTextResponse("down", 503))(scope, receive, send)


async def _lifespan(receive: Receive, send: Send) -> None:
    for answer in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{answer}.complete"})


@dataclass
class Life:
    """One process: its own connections, adapters, catalog, hints and watches."""

    ctx: Context
    clock: Clock
    table: list[ScheduledJob]
    watches: Mapping[str, CloudWatch]
    rows: DueRows
    board: Board
    #: When each of those jobs runs next, in monotonic seconds, as production's scheduler measures them.
    next_s: dict[str, float] = field(default_factory=dict)
    #: How often the jobs with a pace of their own run, in seconds.
    pace_s: Mapping[str, float] = field(default_factory=lambda: PACE_S)
    #: How often each job ran, and how many rows it worked on.
    ran: dict[str, list[int]] = field(default_factory=dict)
    #: When a row of each job is due, as of the last look.
    _seen: dict[str, datetime] = field(default_factory=dict)
    #: The jobs that did nothing at the last turn.
    _idle: set[str] = field(default_factory=set)
    #: The clouds at which something may be.
    _held: set[str] = field(default_factory=set)

    def wait(self) -> timedelta:
        """How long there is nothing to be done here. Less than nothing when something is late."""
        now, at_s = self.clock.now(), self.clock.monotonic()
        paced = [*self.next_s.values(), *(self._looks_s(name) for name in self.watches)]
        # Seconds are rounded when they become a timedelta, and it must not end before they have passed.
        waits = [timedelta(seconds=one - at_s) + timedelta.resolution for one in paced]
        for name, at in self._seen.items():
            waits.append(max(at - now, RETRY) if name in self._idle else at - now)
        return min(waits, default=timedelta())

    async def turn(self) -> None:
        """Run what is due now, and what that makes due at once. What did nothing has another try at the next turn."""
        self._idle = set()
        for _ in range(8):
            names = await self._wanted() - (self._idle - ON_CALL)
            if not names:
                return
            for job in self.table:
                if job.name in names and not await self._run(job):
                    self._idle.add(job.name)

    async def _wanted(self) -> set[str]:
        now, at_s = self.clock.now(), self.clock.monotonic()
        names = {name for name, next_s in self.next_s.items() if next_s <= at_s}
        self._seen = await self._due()
        names |= {name for name, at in self._seen.items() if at <= now}
        rung = [job for job in self.table if any(hint.is_set() for hint in job.hints)]
        for job in rung:
            if job.hurry is not None:
                job.hurry()
        for job in rung:
            for hint in job.hints:
                hint.clear()
        names |= ON_CALL & {job.name for job in rung}
        return names | {name for name in self.watches if self._looks_s(name) <= at_s}

    def _looks_s(self, name: str) -> float:
        """When a cloud is to be looked at next, in monotonic seconds."""
        next_s, looked_s = self.watches[name]._next_s, self.watches[name]._looked_s  # Its pace is its own.
        if next_s is None or looked_s is None:
            return self.clock.monotonic()
        is_idle = name.removeprefix("reconcile-") not in self._held and next_s - looked_s > 30
        return max(next_s, looked_s + IDLE_S) if is_idle else next_s

    async def _run(self, job: ScheduledJob) -> int:
        if job.name in self.pace_s:
            self.next_s[job.name] = self.clock.monotonic() + self.pace_s[job.name]
        done = await job.run()
        count = self.ran.setdefault(job.name, [0, 0])
        count[0] += 1
        count[1] += done
        return done

    async def _due(self) -> dict[str, datetime]:
        found = await self.rows.look()
        self._held = {cloud for name, cloud in found if name == "held"}
        due: dict[str, datetime] = {}
        for name, (model, states) in WORKS_ON.items():
            keys = [(model.__name__, str(state)) for state in states]
            moments = [found[key] for key in keys if key in found]
            if moments:
                due[name] = min(moments)
        return due

    async def drop(self) -> None:
        """The process is gone: nothing is finished, only what the machine would close is closed."""
        self.rows.close()
        if self.board.slack is not None:
            await self.board.slack.leave()
        await self.ctx.db.close()
        for provider in self.ctx.providers.values():
            await provider.close()


def begin(
    db: Database,
    clock: Clock,
    clouds: Mapping[str, SandboxCloud],
    clouds_url: str,
    board: Board,
    policy: Policy,
    timing: Timing,
    switch: Switch,
    node_url: str,
    *,
    volumes: bool = False,
) -> Life:
    """A new process on the ledger; with `volumes` it rents out network volumes, too."""
    pacer = LocalPacer(clock, 0)  # These clouds count no calls, and waiting would move everybody's time.
    environments = {name: cloud.environment(f"{clouds_url}/{name}") for name, cloud in clouds.items()}
    providers = adapters(environments, clock, pacer, volumes=volumes)
    ctx = wiring.assemble(db, clock, providers, LABELS, policy=policy, timing=timing, node_url=node_url)
    switch.app = build_api(Dependencies(ctx, ApiSettings(CHANNEL)), {})
    if board.slack is not None:
        board.door = board.slack.door(ctx)
    table = jobs(ctx, board, None)
    watches = {job.name: job.run.__self__ for job in table if job.name.startswith("reconcile-")}  # type: ignore[attr-defined]
    strange = {job.name for job in table} - set(PACE_S) - set(WORKS_ON) - set(watches) - ON_CALL
    assert not strange, f"say in PACE_S, WORKS_ON or ON_CALL when these jobs run: {sorted(strange)}"
    life = Life(ctx, clock, table, watches, DueRows(db), board)
    life.next_s = {job.name: clock.monotonic() for job in table if job.name in PACE_S}
    return life


async def settle_tasks() -> None:
    """Give what was started in the background its turns."""
    for _ in range(5):
        await asyncio.sleep(0)
