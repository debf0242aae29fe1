"""A run that trains, saves to a store and moves: what its jobs on both machines do, and what must hold meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum, auto
from typing import Any, NamedTuple

from sqlalchemy import select

from bot.rules.relocation.steps import LIMITS_S
from bot.services.relocation import progress
from bot.services.relocation.start import Migrate, migrate
from bot.services.runtime.commands import Reply
from bot.services.sessions import idle_termination
from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from ledger.kernel.steps.relocation_step import OVER, MigrationStep
from ledger.models import Instance, Migration, Session
from providers.sandbox.agents import SandboxAgent
from tests.services.checkpoints.test_verification import looks_at
from tests.services.relocation.mortal import Killed, Processes
from tests.support.agents import listening
from tests.support.stores import Shelf, served
from tests.support.world import ALICE, World, facts

PLACE = "s3://bucket/run"
STEP_S = 30.0
#: One machine was reached before, the other one is not: the order in which they were rented.
SOURCE, TARGET = 0, 1
BEFORE = [{"name": "environment", "state": "done"}, {"name": "packages", "state": "done"}]


class Work(Enum):
    """What a process of the service does in one turn."""

    MIGRATIONS = auto()
    REST = auto()


class Death(NamedTuple):
    """At which transaction from now a process dies, and whether that one is committed."""

    transaction: int
    after_commit: bool


@dataclass
class Run:
    """One run and its trainers. `on_tick` is called before each step of the clock."""

    w: World
    shelf: Shelf
    request_id: str
    first: SandboxAgent
    owner: Actor = ALICE
    target_id: str = ""
    #: What the trainers leave undone, by its word: a source that does not pause, a target that never starts.
    refuses: set[str] = field(default_factory=set)
    on_tick: Callable[[], None] | None = None
    #: Says before each turn of the service's work at which of its transactions the process dies; None: at none.
    dies: Callable[[Work], Death | None] | None = None
    #: The steps seen, and from when until when two machines were paid.
    seen: list[MigrationStep] = field(default_factory=list)
    two_since: datetime | None = None
    two_for: timedelta = timedelta()
    writers: list[int] = field(default_factory=list)
    _processes: Processes | None = None

    @property
    def processes(self) -> Processes:
        """The processes of the service."""
        if self._processes is None:
            self._processes = Processes(self.w)
            self._processes.start()
        return self._processes

    @property
    def agents(self) -> list[SandboxAgent]:
        """The agents of the machines that run, the source's first."""
        return sorted(self.w.engine.nodes.running.values(), key=lambda one: one is not self.first)

    @property
    def second(self) -> SandboxAgent:
        """The target's agent."""
        return next(one for one in self.agents if one is not self.first)

    def put(self, step: int, size: int = 1_000) -> None:
        """A trainer uploads its checkpoint."""
        self.shelf.put(f"run/step-{step}/model.pt", size, self.w.clock.now())

    def react(self) -> None:
        """Let each trainer do what its agent wrote to `asks`."""
        now = self.w.clock.now()
        for agent in self.agents:
            (self._source if agent is self.first else self._target)(agent, now)
        trains = [one for one in self.agents if one.job == "running" and any(one.utilisation)]
        self.writers.append(len(trains))
        assert len(trains) <= 1, "two trainers write to one store"
        assert self.shelf.files, "no copy is left"

    def _source(self, agent: SandboxAgent, now: datetime) -> None:
        if agent.job not in ("running", "paused"):
            return
        if "upload" in agent.asks and agent.job == "running" and "save" not in self.refuses:
            self.put(int(agent.step))
            agent.saved_step, agent.saved_at = int(agent.step), now
        pauses = "pause" in agent.asks and "pause" not in self.refuses
        agent.job, agent.utilisation = ("paused", [0.0]) if pauses else ("running", [93.0])

    def _target(self, agent: SandboxAgent, now: datetime) -> None:
        found = next((one.partition("=")[2] for one in agent.asks if one.startswith("resume=")), "")
        starts = "start" in agent.asks and "start" not in self.refuses
        fetched = bool(found) and "fetch" not in self.refuses
        runs = agent.machine is not None and agent.machine["steps"][-1]["state"] == "done"
        if not runs:
            agent.utilisation, agent.step = [0.0], 0.0
            agent.machine = {
                "steps": [
                    *BEFORE,
                    {"name": "checkpoint", "state": "done" if fetched else "running"},
                    {"name": "start", "state": "done" if starts and fetched else "waiting"},
                    {"name": "run", "state": "done" if starts and fetched else "waiting"},
                ]
            }
            if starts and fetched:
                # A command that ignores RESUME_FROM begins anew.
                agent.step = 0.0 if "resume" in self.refuses else float(found.rpartition("-")[2])
                agent.worked_at = now
                runs = True
        if runs:
            agent.utilisation = [0.0] if "train" in self.refuses else [93.0]

    async def tick(self, step_s: float = STEP_S) -> None:
        """Let time pass once: agents report, trainers react, and the service works."""
        w = self.w
        w.clock.advance(step_s)
        if self.on_tick is not None:
            self.on_tick()
        for cloud in {key.partition("/")[0] for key in w.engine.nodes.running}:
            await w.clouds[cloud].tick()
        self.react()
        await self._works(Work.MIGRATIONS, lambda: progress.migrations_due(self.w.ctx))
        await self._works(Work.REST, self._rest)
        row = await self.migration() if self.target_id else None
        if row is not None and (not self.seen or self.seen[-1] is not row.step):
            self.seen.append(row.step)
        if len(w.alive()) > 1:
            self.two_for += timedelta(seconds=step_s)

    async def _rest(self) -> None:
        await idle_termination.idle_terminations_due(self.w.ctx)
        await self.w.settle(3)

    async def _works(self, which: Work, work: Callable[[], Awaitable[object]]) -> None:
        """Let the process do something, and start the next one when it died meanwhile."""
        death = self.dies(which) if self.dies is not None else None
        if death is None:
            await work()
            return
        db = self.processes.db
        db.dies_in, db.after_commit = death
        try:
            await work()
        except Killed:
            self.processes.kill()
        finally:
            db.dies_in = None

    async def until(self, *steps: MigrationStep, most_s: float = 4 * 3600.0) -> Migration:
        """Let time pass until the migration reached one of these steps."""
        for _ in range(int(most_s / STEP_S)):
            row = await self.migration()
            if row is not None and row.step in steps:
                return row
            await self.tick()
        raise AssertionError(f"the migration stays at {row.step if row else None}: {row.note if row else ''}")

    async def over(self) -> Migration:
        """Let time pass until the migration is over, and until every machine that was ordered to end is gone."""
        row = await self.until(*OVER)
        for _ in range(6):
            await self.tick()
        return row

    async def ask(self, to: str = "", key: str = "move-1") -> Reply:
        """Ask for the move."""
        reply = await migrate(self.w.ctx, Migrate(key, self.request_id, facts(self.owner), to))
        self.target_id = str(reply.data.get("request_id", "")) if reply.ok else ""
        return reply

    async def approved(self, to: str = "vast") -> None:
        """Ask for the move and approve it; nothing is created yet."""
        reply = await self.ask(to)
        assert reply.ok, reply
        await self.w.settle()
        decided = await self.w.decide(self.target_id)
        assert decided.code == "approved", decided

    async def migration(self) -> Migration | None:
        async with self.w.ctx.db.read() as tx:
            return await tx.scalar(select(Migration).where(Migration.request_id == self.target_id))

    async def sessions(self) -> tuple[Session, Session | None]:
        """The source's session and the target's."""
        found = {one.request_id: one for one in (await self.w.books()).sessions}
        return found[self.request_id], found.get(self.target_id)

    async def row(self, which: int) -> Instance:
        """The newest instance of the source or of the target."""
        of = self.request_id if which == SOURCE else self.target_id
        return [one for one in (await self.w.books()).instances if one.request_id == of][-1]

    def crash(self) -> None:
        """`kill -9`: nothing that a process had in memory is left, and a new one works on the same ledger."""
        self.processes.kill()

    async def close(self, db: Database) -> None:
        """Let the world go on with the ledger of before."""
        if self._processes is not None:
            await self._processes.close(db)

    def replies(self) -> list[str]:
        """The subjects of the direct messages about the move."""
        return [of for kind, of, to, _ in self.w.board.shown if kind == "reply" and "/mig_" in of and to == ALICE.id]

    async def texts(self) -> list[str]:
        """The direct messages about the move, in order."""
        notes = [one for one in (await self.w.books()).notifications if one.kind == "reply" and "/mig_" in one.subject]
        return [str(one.body["text"]) for one in sorted(notes, key=lambda one: (one.created_at, one.id))]


#: Two machines are never paid for longer than all steps together may take, with their boot and their ends.
LONGEST_TWO = timedelta(seconds=sum(LIMITS_S.values()) + 1800)


@asynccontextmanager
async def running(w: World, hours: int = 2, actor: Actor = ALICE, **job: Any) -> AsyncIterator[Run]:
    """A run that has saved a checkpoint, on a machine at Vast, with its store and both trainers."""
    shelf = Shelf()
    async with listening(w), served(shelf) as stores:
        looks_at(w, stores)
        job = {"candidates": ("vast",), "run": "python train.py", "checkpoint": PLACE, **job}
        request_id = await w.running(actor, hours=Decimal(hours), **job)
        first = next(iter(w.engine.nodes.running.values()))
        first.machine = {"steps": [*BEFORE, {"name": "run", "state": "done"}]}
        run = Run(w, shelf, request_id, first, actor)
        run.put(1)
        first.saved_step, first.saved_at = 1, w.clock.now()
        for _ in range(3):
            await run.tick()
        run.put(int(first.step))
        first.saved_step, first.saved_at = int(first.step), w.clock.now()
        for _ in range(3):
            await run.tick()
        before = w.ctx.db
        try:
            yield run
        finally:
            await run.close(before)
        # The server is gone from here on, so nothing reports, and the sessions end by themselves.
