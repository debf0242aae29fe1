"""Everything of one seed: the clouds, the ledger, the processes and the agenda, all on one stepped clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest import mock

import httpx
from sqlalchemy import make_url, select
from starlette.applications import Starlette

from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.services.audit import invariants
from bot.services.nodes import checkins
from bot.services.recovery.detection import check_at_start
from bot.services.runtime import ends_copy
from bot.services.runtime.clock_guard import CONFIRM_S, GuardedClock
from bot.services.runtime.epoch import Epoch
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState
from ledger.models import Request, Token
from ledger.queries.audit import Books, read_books
from providers.contract import Provider
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import truth
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app
from tests.scenarios.month.board import Board
from tests.scenarios.month.faults import HIDES, RAISES
from tests.scenarios.month.life import PACE_S, TICK, begin
from tests.scenarios.month.town import BOOT_POLL_S
from tests.scenarios.simulation import promises
from tests.scenarios.simulation.bill_pages import confirm_explained
from tests.scenarios.simulation.bills import REPLACED, differences
from tests.scenarios.simulation.connection import Connections
from tests.scenarios.simulation.line import Line, Weather
from tests.scenarios.simulation.loop import Agenda, SimulatedClock
from tests.scenarios.simulation.process import Door, Interrupted, Process, settled
from tests.scenarios.simulation.reach import NumberedPorts, NumberedReach
from tests.scenarios.simulation.swarm import CLOUDS, Profile, draw
from tests.scenarios.simulation.troubles.checkins import CHECKIN_S, LOOKED_AT_S, CheckIns
from tests.scenarios.simulation.troubles.ends_only import EndsOnly
from tests.scenarios.simulation.troubles.kinds import ABOUT_AGENTS, Kind, Stretch, Troubles
from tests.scenarios.simulation.troubles.kinds import draw as draw_troubles
from tests.scenarios.simulation.troubles.restored import Restored
from tests.scenarios.simulation.troubles.truth import Truth
from tests.support.clock import MachineClock
from tests.support.wire import NODES_URL, Wire, wired
from tests.support.world import World

T = TypeVar("T")
APPROVERS = ("UBOB", "UCAROL")
CREDIT_USD = Decimal(100_000)
#: The longest jump: jobs have a pace, and a killed process holds its claims for minutes.
JUMP = timedelta(seconds=600)
#: Quiet clouds are listed less often than in production, which costs most of a seed.
SWEEP_S = 240.0
#: The invariant that a cloud breaks which hides a running instance from everybody.
CLOSED = "closed means gone"
#: What concerns agents, reports and programs runs seldom: there are none. What books and checks runs in the time in
#: which a session can spend a fraction of its cap only.
SELDOM_S, BOOKED_S = 14_400.0, 900.0
PACES_S = {name: BOOKED_S if name in ("clock-check", "metering", "overspend") else SELDOM_S for name in PACE_S}
#: Searches for labels and repeated messages come as seldom as production allows, which costs a fifth of a seed.
LABEL_SEARCH_S, OUTBOX_RETRY_S = 30.0, 10.0


@dataclass(kw_only=True)
class Place(Agenda, Truth):
    """Everything around the processes, and they themselves."""

    seed: int
    random: Random
    db_url: str
    app: Starlette
    profile: Profile
    weather: Weather
    board: Board
    stack: ExitStack
    policy: Policy
    timing: Timing
    troubles: Troubles
    #: Where the processes run; one that was killed starts again on the same machine.
    machines: list[MachineClock] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    #: What must never be, with the moment at which it was seen first.
    violations: list[str] = field(default_factory=list)
    #: The adapters of the newest process, which say how their clouds bill.
    providers: Mapping[str, Provider] = field(default_factory=dict)
    #: What makes a disturbed instance whole again, by cloud and its id there.
    undo: dict[tuple[str, str], str] = field(default_factory=dict)
    #: The ids at their clouds of instances that were, for a time, in no listing and no read while they ran.
    hidden: set[str] = field(default_factory=set)
    #: Those that vanished by themselves before the ledger had them.
    unseen: set[str] = field(default_factory=set)
    kills: int = 0
    steps: int = 0
    #: The one restore of an older copy that a seed may have.
    restored: Restored | None = None
    #: When the previous release ran on the ledger, if it did.
    ends_only: EndsOnly | None = None
    #: The troubles that are still to come, or of which operators have still to do something.
    expected: set[str] = field(default_factory=set)
    _made: Any = field(default_factory=count)
    _late: set[asyncio.Task[Any]] = field(default_factory=set)

    def a_process(self) -> Process | None:
        """One that works now, by chance."""
        there = [one for one in self.processes if one.works]
        return self.random.choice(there) if there else None

    async def by_a_process(self, work: Callable[[World], Coroutine[Any, Any, T]]) -> T | None:
        """What a process answers to a person; None when it answered nothing."""
        process = self.a_process()
        if process is None:
            return None
        with suppress(Interrupted):
            return await process.do(work(self.hands(process)))
        self.note(f"process {process.number} gave no answer")
        return None

    def hands(self, process: Process) -> World:
        """What people do, done to one process."""
        return World(process.life.ctx, self.clock, self.clouds, self.engine, self.board, process.machine)  # type: ignore[arg-type]

    def begin(self, number: int, machine: MachineClock) -> Process:
        """Start a process on a machine."""
        process = Process(number, machine, lambda: any(one.connections.writing for one in self.processes))
        url = f"http://clouds-{next(self._made)}.test"
        database = Database(self.db_url, connect=process.connections)
        self.stack.enter_context(wired(Line(self.app, process, self.weather, self._later), url))
        clock, door = GuardedClock(machine, confirm_s=CONFIRM_S), Door(self.board, process)
        troubles = self.troubles
        parts = (self.policy, self.timing, process.switch, NODES_URL if troubles.has_agents else "")
        volumes = bool(troubles.volume_at)
        process.life = begin(database, clock, self.clouds, url, door, *parts, volumes=volumes)
        paces_s = PACES_S | ({"idle": LOOKED_AT_S} if troubles.has_agents else {})
        process.life.pace_s = paces_s
        later_s = clock.monotonic() + SELDOM_S / 2
        # Only jobs that this process has: one that never runs would stay due, and time would go on second by second.
        own = process.life.next_s
        own |= {name: later_s for name in own if paces_s[name] == SELDOM_S}
        process.life.ctx.epoch = Epoch((self.folder,), f"process-{number}")
        process.life.ctx.reach = NumberedReach(self.engine.ssh_ports)
        self.providers = process.life.ctx.providers
        return process

    async def close(self) -> None:
        """End every process, without a trace in the ledger."""
        for one in self.processes:
            one.cut()
            await one.bury()
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await self.engine.nodes.close()
        await self.ledger.close()

    @property
    def has_late_calls(self) -> bool:
        """Whether a call of a process is still on its way to a cloud."""
        return any(not task.done() for task in self._late)

    def _later(self, seconds: float, request: httpx.Request) -> None:
        async def arrive() -> None:
            await asyncio.sleep(seconds)
            self.note(f"late: {request.method} {request.url.path}")
            with suppress(httpx.HTTPError):
                await Wire(self.app).handle_async_request(request)

        self._late.add(asyncio.get_running_loop().create_task(arrive()))

    async def run(self, until: datetime, steps: int | None = None) -> None:
        """Let everything happen until then, from due time to due time, or until so many steps or a crash."""
        last, kills = self.steps + (steps or 1_000_000), self.kills
        while self.now < until and self.steps < last and (steps is None or self.kills == kills):
            await self.do_what_is_due()
            await self._turns()
            for name in self.profile.clouds:
                await self.clouds[name].tick()
            following = [until, self.now + JUMP]
            following += [node.next_at for node in self.engine.nodes.running.values()]
            following += [self.now + one.life.wait() for one in self.processes if one.works]
            following += [self.agenda[0][0]] if self.agenda else []
            before = self.now
            await asyncio.sleep(max(min(following) - before, TICK).total_seconds())

    def calm(self) -> None:
        """No more faults, and what was broken is whole again."""
        self.weather.is_calm = True
        self.weather.dark.clear()
        self.engine.faults.disarm()
        for planned, end in list(self.troubles.ongoing.items()):
            if planned.kind not in ABOUT_AGENTS:  # What a job does is no fault.
                end()
        self.board.down = False
        for one in self.processes:
            one.resume()
            one.spare()
        for machine in self.machines:
            machine.off = timedelta()
        for cloud, ref in list(self.undo):
            self.undo_disturbance(cloud, ref)

    def disturb(self, cloud: str, ref: str, what: str, undone_by: str = "") -> None:
        """Do something to an instance, and note it."""
        self.clouds[cloud].disturb(ref, what)
        self.note(f"{cloud} {ref}: {what}")
        if what == HIDES:
            self.hidden.add(ref)
        if what == "offline":
            self.troubles.begin(Kind.OFFLINE, cloud, [ref], self.now)
        elif what not in RAISES:
            self.troubles.disturbed.add((cloud, ref))
        if undone_by:
            self.undo[cloud, ref] = undone_by

    async def make_good(self, cloud: str, ref: str) -> None:
        """Undo what was done to an instance."""
        self.undo_disturbance(cloud, ref)

    def undo_disturbance(self, cloud: str, ref: str) -> None:
        """Undo what was done to an instance, unless it has ended."""
        what = self.undo.pop((cloud, ref), None)
        if what is not None and any(one.alive and one.ref == ref for one in self.clouds[cloud].instances()):
            self.clouds[cloud].disturb(ref, what)
        self.troubles.end([stretch for stretch in self.troubles.stretches if self._is_lost(stretch, ref)], self.now)

    def _is_lost(self, stretch: Stretch, ref: str) -> bool:
        return stretch.kind is Kind.OFFLINE and stretch.ref == ref

    def decimal(self, texts: Sequence[str]) -> Decimal:
        """One of these amounts, by chance."""
        return Decimal(self.random.choice(texts))

    async def _turns(self) -> None:
        """Every process that works takes its turn, all at once; then those that were killed are buried."""
        self.steps += 1
        for one in self.processes:
            if one.works and (one.turn is None or one.turn.done()):
                one.turn = one.start(one.life.turn())
        await settled({one: one.turn for one in self.processes if one.works and one.turn is not None})
        for one in [one for one in self.processes if one.is_dead]:
            await self._bury(one)
        for one in self.processes:
            if one.turn is not None and one.turn.done():
                one.turn.result()
                one.forget_done()

    async def _bury(self, dead: Process) -> None:
        """A killed process leaves, and another one starts on the same ledger a little later."""
        self.kills += 1
        self.processes.remove(dead)
        await dead.bury()
        down_s = 0.0 if self.weather.is_calm else self.random.choice((0.0, 5.0, 60.0, 600.0))
        self.note(f"process {dead.number} died after {dead.steps} steps, and is away for {down_s:.0f} s")

        self.after(down_s, partial(self.start, dead.number, dead.machine))

    async def start(self, number: int, machine: MachineClock) -> None:
        """Start a process on a machine; first it compares the ledger with the records beside it, as production does."""
        process = self.begin(number, machine)
        self.processes.append(process)
        name, copy = process.life.ctx.epoch.replica, ends_copy.load(self.folder / ends_copy.NAME)
        with suppress(Interrupted):
            await process.do(check_at_start(process.life.ctx, copy, name))

    async def kill(self, *dead: Process) -> None:
        """Kill these processes at once."""
        self.processes = [one for one in self.processes if one not in dead]
        for one in dead:
            one.cut()
            await one.bury()
        self.kills += len(dead)

    async def kill_all(self) -> None:
        """Kill every process at once; nobody reads the ledger any more."""
        await self.kill(*self.processes)
        await self.ledger.close()
        del self.ledger

    @property
    def folder(self) -> Path:
        """The data folder of the deployment: the ledger, and beside it the records that know how old it must be."""
        return Path(str(make_url(self.db_url).database)).parent

    @cached_property
    def ledger(self) -> Database:
        """The ledger as somebody reads it who is none of the processes."""
        return Database(self.db_url, connect=Connections())

    async def requests(self, *states: RequestState) -> list[tuple[Request, list[Token]]]:
        """The requests in one of these states, the oldest first, with the buttons of their newest offers."""
        wanted = select(Request).where(Request.state.in_(states)).order_by(Request.created_at, Request.id)
        buttons = select(Token).join(Request, Request.id == Token.request_id).order_by(Token.token)
        newest = Token.quote_version == Request.quote_version
        async with self.ledger.read() as tx:
            found = list(await tx.scalars(wanted))
            tokens = list(await tx.scalars(buttons.where(Request.state.in_(states), newest))) if found else []
        return [(row, [one for one in tokens if one.request_id == row.id]) for row in found]

    async def check(self, *, healed: bool = False) -> list[str]:
        """What the ledger and the clouds' truth say that must never be. Bills are judged by `bill_differences`."""
        seen = truth(self.engine, self.clouds.values())
        found = await invariants.check(self.ledger, self.clock, seen, is_settled=healed, providers=self.providers)
        if found and self.restored is not None:
            rows = (await self.books()).instances
            found = [one for one in found if not self.restored.explains(one, self.engine.creates, rows, self.now)]
        if self.ends_only is not None:
            found = [one for one in found if not self.ends_only.explains(one, self.now)]
        return [str(one) for one in found if one.rule != REPLACED and (healed or not self._was_hidden(one))]

    def _was_hidden(self, one: invariants.Violation) -> bool:
        """Whether it is about an instance that nobody could see: its return is noticed later, and judged at the end."""
        return one.rule == CLOSED and any(ref in str(one) for ref in self.hidden)

    async def answer_bill_pages(self) -> None:
        """An operator answers the pages that arrived about bills above what was approved."""
        pages = [one.text for one in self.board.attempts if one.arrived]
        for reply in await confirm_explained(self.processes[0].life.ctx, pages, self.instances(), self.hidden):
            self.note(f"operator: {reply.code}: {reply.sentence}")

    def bill_differences(self, books: Books) -> list[str]:
        """The instances whose bill is not what the ledger says; bills must be settled."""
        forgotten = self.restored.forgotten if self.restored is not None else frozenset[tuple[str, str]]()
        return list(differences(self.processes[0].life.ctx, books, self.instances(), self.unseen, forgotten))

    def broken_promises(self, books: Books) -> list[str]:
        """What the whole history must show, and does not."""
        may = {Actor(ActorKind.SLACK, name, "T1").ref for name in APPROVERS}
        return list(promises.broken(books, self.instances(), self.providers, may))

    async def books(self) -> Books:
        """Everything that the ledger says now."""
        return await read_books(self.ledger)


@asynccontextmanager
async def place(db_url: str, seed: int, clock: SimulatedClock) -> AsyncIterator[Place]:
    """Build the place of a seed, with its first processes; afterwards everything is closed."""
    random = Random(seed)
    boot_s, destroy_s = random.choice((3.0, 40.0, 120.0)), random.choice((0.5, 20.0))
    timing = SandboxTiming.quick(boot_s=boot_s, destroy_s=destroy_s)
    clouds = sandboxes(clock, timing, seed=random.randrange(50), names=CLOUDS, bad_rows=True)
    engine = next(iter(clouds.values())).engine
    engine.ssh_ports = NumberedPorts()
    for cloud in clouds.values():
        account: Any = cloud
        account.account.credit_usd = CREDIT_USD
    profile = draw(random, clouds)
    troubles = draw_troubles(Random(f"{seed} troubles"), profile.clouds)
    weather = Weather(Random(f"{seed} weather"), profile, engine, clock, troubles)
    policy = Policy(approvers=APPROVERS, max_open_requests_per_user=20, confirm_above_usd=Decimal(10_000))
    with ExitStack() as stack:
        built = Place(
            seed=seed,
            random=random,
            db_url=db_url,
            clock=clock,
            clouds={name: clouds[name] for name in profile.clouds},
            engine=engine,
            app=build_app(clouds, tick_s=None),
            profile=profile,
            weather=weather,
            board=Board(clock, lambda _: None),
            stack=stack,
            policy=policy,
            troubles=troubles,
            timing=replace(
                Timing(),
                sweep_s=SWEEP_S,
                boot_poll_s=BOOT_POLL_S,
                label_search_s=LABEL_SEARCH_S,
                outbox_retry_s=OUTBOX_RETRY_S,
            ),
        )
        if troubles.has_agents:
            stack.enter_context(mock.patch.object(checkins, "GROUP_EVERY_S", 0.0))
            engine.nodes.every_s = CHECKIN_S
            door = Wire(CheckIns(lambda: built.processes))
            engine.nodes._client = httpx.AsyncClient(transport=door, trust_env=False)
        try:
            built.machines = [MachineClock(clock) for _ in range(profile.replicas)]
            for number, machine in enumerate(built.machines):
                await built.start(number, machine)
            yield built
        finally:
            await built.close()
