"""A whole service on a real ledger, against the sandboxes over real HTTP, with time in the test's hands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import select

from bot.rules.approvals.decision import DeciderFacts
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.values.labels import LabelKey
from bot.services.approvals import decisions
from bot.services.audit import invariants
from bot.services.billing import metering, rollup
from bot.services.checkpoints import resume
from bot.services.grants.amendments import amended_terms
from bot.services.instances import gpu_checks, grace, node_sets, operator_reminders, reconcile
from bot.services.nodes import key_writes
from bot.services.outbox import dispatch
from bot.services.requests import submit
from bot.services.runtime.clock_guard import GuardedClock
from bot.services.runtime.commands import Cancel, Decide, Extend, Provision, Reply, Terminate
from bot.services.runtime.context import Context, Hints
from bot.services.runtime.ports import Delivered, DeliveryFailed
from bot.services.sessions import account_incidents, extension, service, shared_queues, transfer
from ledger.core.inbox import InboxWriter
from ledger.core.writes import amend
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import SessionState
from ledger.models import Instance, Notification, Option, Session
from ledger.queries.audit import Books, read_books
from ledger.queries.views import RequestView, SessionView, request_view, session_view
from providers.cloud_names import machines_of
from providers.contract import Provider
from providers.gpus.constraint import GpuConstraint
from providers.rate_limits import LocalPacer
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import Engine, SandboxCloud, TrueInstance, truth
from providers.sandbox.nodes.process_nodes import ProcessNodes
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app
from tests.support.clock import MachineClock, SteppedClock
from tests.support.jobs import due_jobs, work_off
from tests.support.serving import adapters, catalog_of
from tests.support.wire import RealReach, reachable

ALICE = Actor(ActorKind.SLACK, "UALICE", "T1")
BOB = Actor(ActorKind.SLACK, "UBOB", "T1")
CAROL = Actor(ActorKind.SLACK, "UCAROL", "T1")
DAVE = Actor(ActorKind.SLACK, "UDAVE", "T1")
CHANNEL = "C0GPU"
STEP_S = 15.0
#: After this long without faults nothing may be stuck: the longest request and session of the tests are over by then.
HEAL_S = 4.5 * 3600
HEAL_STEP_S = 1800.0


def facts(actor: Actor, **changes: Any) -> DeciderFacts:
    """A full member of the home workspace."""
    return replace(DeciderFacts(actor), **changes)


@dataclass
class Board:
    """A place that shows notifications: keeps every version of each, and can be out of order."""

    shown: list[tuple[str, str, str, int]] = field(default_factory=list)
    down: bool = False
    #: Destinations that take no message from anybody.
    unreachable: set[str] = field(default_factory=set)
    attempts: int = 0

    async def deliver(self, notification: Notification) -> Delivered:
        self.attempts += 1
        if self.down:
            raise DeliveryFailed("the board is down")
        # A reference names an owner outside Slack, whose account a real delivery looks up.
        outside = notification.destination.startswith(("operator:", "consumer:", "agent:"))
        if outside or notification.destination in self.unreachable:
            raise DeliveryFailed("nobody is there", permanent=True)
        self.shown.append(
            (str(notification.kind), notification.subject, notification.destination, notification.version)
        )
        return Delivered(notification.destination, notification.ts or f"{len(self.shown)}.0")

    def kinds(self, subject: str | None = None) -> list[str]:
        """The kinds shown so far, in order, for one subject or for all."""
        return [
            kind for kind, of, _, _ in self.shown if subject is None or of == subject or of.startswith(f"{subject}/")
        ]


@dataclass
class World:
    """Services, clouds and clock. `clouds` and `engine` are the truth that the service cannot see."""

    ctx: Context
    clock: SteppedClock
    clouds: Mapping[str, SandboxCloud]
    engine: Engine
    board: Board
    #: The clock of the service's machine, which a test may set wrong.
    machine: MachineClock
    asked: int = 0
    #: What each cloud's adapter is set up with.
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: The clouds that were looked at, and whether the next look was called urgent.
    looked: dict[str, bool] = field(default_factory=dict)
    #: The contexts before the present one, whose clouds are closed at the end, too.
    earlier: list[Context] = field(default_factory=list)

    async def ask(self, actor: Actor = ALICE, **changes: Any) -> Reply:
        """Submit a request for one RTX 4090 for two hours, or whatever `changes` say.

        Asked of one cloud, it is the GPU that this cloud always sells, and a program where it wants one.
        """
        self.asked += 1
        chosen = [name for name in changes.get("candidates", ()) if name in self.clouds]
        gpu, count = "RTX4090", 1
        if len(chosen) == 1:
            gpu, count = self.clouds[chosen[0]].STAPLE, self.clouds[chosen[0]].STAPLE_COUNT
            if chosen[0] in self.ctx.providers and self.ctx.providers[chosen[0]].capabilities.batch:
                changes.setdefault("run", "python train.py")
        changes.setdefault("gpu", GpuConstraint((gpu,), count, count))
        changes.setdefault("hours", Decimal(2))
        key = changes.pop("key", f"key-{self.asked}")
        return await submit.submit(self.ctx, Provision(key, actor, CHANNEL, JobRequest(**changes)))

    async def view(self, request_id: str) -> RequestView:
        """The request as people would see it."""
        async with self.ctx.db.read() as tx:
            return await request_view(tx, request_id)

    async def session(self, session_id: str) -> SessionView:
        """A session as people would see it."""
        async with self.ctx.db.read() as tx:
            return await session_view(tx, session_id)

    async def token(self, request_id: str, action: str = "approve", rank: int = 1) -> str:
        """The value of one of the request's buttons."""
        view = await self.view(request_id)
        option = next((o.id for o in view.options if o.rank == rank), None) if action == "approve" else None
        return next(t.token for t in view.tokens if t.action == action and t.option_id == option)

    async def decide(self, request_id: str, actor: Actor = BOB, action: str = "approve", **changes: Any) -> Reply:
        """Click a button as somebody."""
        rank = changes.pop("rank", 1)
        token = await self.token(request_id, action, rank)
        if action == "approve" and "seen" not in changes:
            view = await self.view(request_id)
            changes["seen"] = amended_terms(view.request, view.approvals).digest
        return await decisions.decide(self.ctx, Decide(token, facts(actor), **changes))

    async def cancel(self, request_id: str, actor: Actor = ALICE, reason: str = "") -> Reply:
        """Withdraw a request by its id as somebody."""
        return await decisions.cancel(self.ctx, Cancel(request_id, facts(actor), reason))

    async def end(self, request_id: str, actor: Actor = ALICE, reason: str = "") -> Reply:
        """End a session by the id of its request as somebody."""
        return await service.terminate(self.ctx, Terminate(request_id, facts(actor), reason))

    async def more(self, request_id: str, hours: str = "1", actor: Actor = ALICE, **changes: Any) -> Reply:
        """Ask for more time for the session of a request as somebody."""
        self.asked += 1
        key = str(changes.pop("key", f"more-{self.asked}"))
        return await extension.extend(self.ctx, Extend(key, request_id, Decimal(hours), facts(actor), **changes))

    async def shorten(self, session_id: str, by: timedelta) -> None:
        """Bring a session's end in, as a price does that rises and falls again."""
        async with self.ctx.db.write() as tx:
            row = await tx.get_one(Session, session_id)
            assert row.deadline is not None
            await amend(tx, Session, session_id, deadline=row.deadline - by, due_at=self.clock.now())

    async def tick(self, *, again: bool = False) -> int:
        """Do what the ticker does, once, and count it; `again` looks only at clouds where something boots or ends."""
        done = await work_off(self.ctx)
        done += await node_sets.broken_sets_due(self.ctx)
        done += await metering.accrue_due(self.ctx)
        await rollup.roll_due(self.ctx)
        if not again:
            await operator_reminders.operator_reminders_due(self.ctx)
            done += await transfer.transfers_due(self.ctx)
            done += await shared_queues.shared_queues_due(self.ctx)
            await resume.resumes_due(self.ctx)
            done += await grace.graces_due(self.ctx) + await account_incidents.accounts_due(self.ctx)
        for cloud in await self._worth_a_look():
            if not again or self.looked.get(cloud, True):
                self.looked[cloud] = (await reconcile.observe(self.ctx, cloud)).urgent
        if self.ctx.hints.logins.is_set():
            self.ctx.hints.logins.clear()
            done += await gpu_checks.checks_due(self.ctx)
        if self.ctx.hints.machine_keys.is_set():
            self.ctx.hints.machine_keys.clear()
            done += await key_writes.key_writes_due(self.ctx)
        return done + await dispatch.deliver_due(self.ctx, self.board)

    async def _worth_a_look(self) -> list[str]:
        """The clouds to list now: once each, and on from there only where something was ever rented or asked for."""
        async with self.ctx.db.read() as tx:
            used = set(await tx.scalars(select(Instance.cloud).distinct()))
        return [
            cloud
            for cloud in self.ctx.providers
            if cloud in used or self.clouds[machines_of(cloud)].instances() or cloud not in self.looked
        ]

    async def settle(self, most: int = 12) -> None:
        """Tick until nothing is due now."""
        for number in range(most):
            if not await self.tick(again=number > 0) or not await due_jobs(self.ctx.db, self.clock.now()):
                return

    async def run(self, seconds: float, step_s: float = STEP_S) -> None:
        """Let time pass in steps, ticking at each."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < end:
            self.clock.advance(min(step_s, (end - self.clock.now()).total_seconds()))
            await self.settle(4)

    async def approved(self, actor: Actor = ALICE, rank: int = 1, **changes: Any) -> str:
        """A request that was just approved; its create is not sent yet. Returns the request's id."""
        reply = await self.ask(actor, **changes)
        assert reply.ok, reply
        request_id = str(reply.data["request_id"])
        await self.settle()
        decided = await self.decide(request_id, rank=rank)
        assert decided.code == "approved", decided
        return request_id

    async def running(self, actor: Actor = ALICE, **changes: Any) -> str:
        """A request whose instance is ready, with the sandbox's quick timing. Returns the request's id."""
        request_id = await self.approved(actor, **changes)
        await self.settle()
        await self.run(40, 20)
        session = (await self.view(request_id)).session
        assert session is not None
        assert session.state is SessionState.RUNNING, (session.state, session.end_reason)
        return request_id

    async def ready(self, actor: Actor = ALICE, **changes: Any) -> str:
        """Walk a request to a running session and return the request's id."""
        reply = await self.ask(actor, **changes)
        assert reply.ok, reply
        request_id = str(reply.data["request_id"])
        await self.settle()
        decided = await self.decide(request_id)
        assert decided.ok, decided
        await self.settle()
        await self.run(300)
        return request_id

    def arm(self, name: str, cloud: str | None = None, times: int | None = 1, **params: Any) -> None:
        """Switch a fault on, at one cloud or at all."""
        for one in [cloud] if cloud else list(self.clouds):
            self.engine.faults.arm(one, name, times, **params)

    def alive(self) -> list[str]:
        """The names of what really runs, at any cloud."""
        return [str(i.name) for cloud in self.clouds.values() for i in cloud.instances() if i.alive]

    def instances(self) -> list[TrueInstance]:
        """Everything that was ever rented, at any cloud."""
        return [instance for cloud in self.clouds.values() for instance in cloud.instances()]

    def withdraw(self, option: Option) -> None:
        """Somebody else rents what an option offers."""
        assert self.clouds[option.cloud].withdraw(option.offer_key) == 1

    def tune(self, **changes: Any) -> None:
        """Change the policy or the timing, whichever has a setting of that name."""
        policy = {k: v for k, v in changes.items() if k in Policy.__dataclass_fields__}
        timing = {k: v for k, v in changes.items() if k not in policy}
        self.ctx = replace(
            self.ctx, policy=replace(self.ctx.policy, **policy), timing=replace(self.ctx.timing, **timing)
        )

    def boots_in(self, seconds: float) -> None:
        """From now on instances take this long to boot, as at the real clouds."""
        self.engine.timing = replace(self.engine.timing, boot_s=seconds)

    def wrap(self, cloud: str, wrapper: Callable[[Provider], Provider]) -> None:
        """Put something between the services and one cloud's adapter."""
        self.use({**self.ctx.providers, cloud: wrapper(self.ctx.providers[cloud])})

    def use(self, providers: Mapping[str, Provider]) -> None:
        """Go on with these clouds, as a process does that was started with other settings."""
        catalog = catalog_of(providers, self.ctx.clock, self.ctx.timing, self.ctx.db)
        self.earlier.append(self.ctx)
        self.ctx = replace(self.ctx, providers=providers, catalog=catalog)

    async def close(self) -> None:
        """Close every catalog and every connection to a cloud that this process had."""
        await self.ctx.inbox.drain()
        for ctx in (*self.earlier, self.ctx):
            await ctx.catalog.close()
            for provider in ctx.providers.values():
                await provider.close()

    def replica(self, url: str = "") -> World:
        """A second process on the same ledger, or the one at `url`: connections, catalog and hints of its own."""
        db = Database(url or self.ctx.db.url.render_as_string(hide_password=False))
        catalog = catalog_of(self.ctx.providers, self.ctx.clock, self.ctx.timing, db)
        inbox = InboxWriter(db, timedelta(seconds=self.ctx.timing.claim_ttl_s))
        own = replace(self.ctx, db=db, catalog=catalog, inbox=inbox, hints=Hints(), started_s=self.clock.monotonic())
        return replace(self, ctx=own, board=Board())

    async def books(self) -> Books:
        """Every row of the ledger."""
        return await read_books(self.ctx.db)

    async def heal(self) -> None:
        """Everything works again, and enough time passes for every request and session to come to its end."""
        self.engine.faults.disarm()
        self.board.down = False
        await self.run(60, 20)  # Boots are watched closely, because the bill of some clouds starts at their end.
        end = self.clock.now() + timedelta(seconds=HEAL_S)
        while self.clock.now() < end:
            await self.run(HEAL_STEP_S, HEAL_STEP_S)
            if not self.alive() and not await self.violations(healed=True):
                return  # All is over, nothing is left, and the last step was longer than any answer is late.

    async def violations(self, *, healed: bool = False) -> list[str]:
        """What the ledger and the clouds' truth say that must never be."""
        found = await invariants.check(
            self.ctx.db,
            self.clock,
            truth(self.engine, self.clouds.values()),
            is_settled=healed,
            providers=self.ctx.providers,
        )
        return [str(one) for one in found]

    def bill(self) -> Decimal:
        """What the clouds would charge until now."""
        return sum((i.total_usd for cloud in self.clouds.values() for i in cloud.instances()), Decimal(0))


@asynccontextmanager
async def world(
    db: Database,
    clock: SteppedClock,
    *,
    policy: Policy | None = None,
    timing: Timing | None = None,
    sandbox: SandboxTiming | None = None,
    processes: ProcessNodes | None = None,
    volumes: bool = False,
) -> AsyncIterator[World]:
    """Build a world on `db`: Bob and Carol approve, Alice asks. Who brings `processes` ends them; `volumes`: rented."""
    timing = timing or Timing()
    sandbox = sandbox or replace(SandboxTiming(), enforce_rate_limits=False)
    clouds = sandboxes(clock, sandbox, bad_rows=True, processes=processes)
    engine = next(iter(clouds.values())).engine
    machine = MachineClock(clock)
    guarded = GuardedClock(machine)
    async with reachable(build_app(clouds, tick_s=None)) as url:
        pacer = LocalPacer(clock, 0)  # These clouds count no calls, and waiting would move everybody's time.
        environments = {name: cloud.environment(f"{url}/{name}") for name, cloud in clouds.items()}
        providers = adapters(environments, guarded, pacer, volumes=volumes)
        ctx = Context(
            db=db,
            clock=guarded,
            policy=policy or Policy(approvers=(BOB.id, CAROL.id)),
            timing=timing,
            providers=providers,
            catalog=catalog_of(providers, guarded, timing, db),
            labels=LabelKey("test", b"a label key for tests only"),
            reach=RealReach(engine.ssh_ports),
            inbox=InboxWriter(db, timedelta(seconds=timing.claim_ttl_s)),
        )
        built = World(ctx, clock, clouds, engine, Board(), machine, environments=environments)
        try:
            yield built
        finally:
            await built.close()


@asynccontextmanager
async def checked_world(db: Database, clock: SteppedClock, *, heal: bool = False, **parts: Any) -> AsyncIterator[World]:
    """A quick world that must keep every invariant: after the test as it is, and healed when `heal` says so."""
    parts.setdefault("sandbox", SandboxTiming.quick())
    async with world(db, clock, **parts) as built:
        yield built
        _must_be_empty(await built.violations())
        if heal:
            await built.heal()
            _must_be_empty(await built.violations(healed=True))


def _must_be_empty(violations: list[str]) -> None:
    assert not violations, "\n".join(violations)
