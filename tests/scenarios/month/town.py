"""The month: people, clouds, faults and one service after another, on a clock that jumps to what comes next."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count
from random import Random
from typing import Any
from unittest import mock

import httpx

from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.services.nodes import checkins
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import Engine, SandboxCloud, TrueInstance
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app
from tests.scenarios.month.board import Board
from tests.scenarios.month.life import TICK, Life, Switch, begin
from tests.scenarios.month.slack import stand_in
from tests.support.clock import MachineClock, SteppedClock
from tests.support.wire import CLOUDS_URL, NODES_URL, Wire, wired
from tests.support.world import World

Act = Callable[[], Awaitable[None]]
#: Quiet clouds are listed this often: within the five minutes that an instance may outlive its end.
SWEEP_S, BOOT_POLL_S = 240.0, 20.0
#: Agents report this often instead of every minute: well within the silence that would end their session.
CHECKIN_S = 300.0
#: An approval covers so many times the price: a rise within it is a question, and one above it is an end.
PRICE_TOLERANCE = Decimal("1.3")
#: The accounts are paid for the month.
CREDIT_USD = Decimal(100_000)
APPROVERS = ("UBOB", "UCAROL")
OWNERS = tuple(f"UOWNER{number}" for number in range(8))


@dataclass
class Month:
    """Everything. `clouds` and `engine` are the truth that the service cannot see."""

    seed: int
    random: Random
    db_url: str
    clock: SteppedClock
    clouds: Mapping[str, SandboxCloud]
    engine: Engine
    switch: Switch
    board: Board
    life: Life
    policy: Policy
    timing: Timing
    agenda: list[tuple[datetime, int, Act]] = field(default_factory=list)
    #: Faults that were injected, by cloud and name.
    injected: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Stretches in which a cloud could not be reached.
    dark: dict[str, list[tuple[datetime, datetime]]] = field(default_factory=dict)
    #: Stretches in which a cloud showed an instance to nobody, by cloud and its id there.
    hidden: dict[tuple[str, str], list[tuple[datetime, datetime]]] = field(default_factory=dict)
    #: Stretches in which no process ran.
    absent: list[tuple[datetime, datetime]] = field(default_factory=list)
    lives: int = 1
    turns: int = 0
    _order: Any = field(default_factory=count)

    @property
    def now(self) -> datetime:
        """The month's time."""
        return self.clock.now()

    @property
    def hands(self) -> World:
        """What people do, done to the life that runs now."""
        machine = MachineClock(self.clock)
        return World(self.life.ctx, self.clock, self.clouds, self.engine, self.board, machine)  # type: ignore[arg-type]

    def at(self, when: datetime, act: Act) -> None:
        """Do something at a time, or now when it is over."""
        heapq.heappush(self.agenda, (when, next(self._order), act))

    def after(self, seconds: float, act: Act) -> None:
        """Do something later."""
        self.at(self.now + timedelta(seconds=seconds), act)

    def unseen(self, item: TrueInstance, since: datetime) -> timedelta:
        """How long, from then to its end, its cloud could not be reached or did not show it, or nobody ran."""
        until = item.ended_at or self.now
        stretches = sorted((*self.dark[item.cloud], *self.hidden.get((item.cloud, item.ref), []), *self.absent))
        found = timedelta(0)
        for start, end in stretches:
            found += max(min(end, until) - max(start, since), timedelta(0))
            since = max(since, end)
        return found

    async def run(self, until: datetime) -> None:
        """Let everything happen until then."""
        while self.now < until:
            while self.agenda and self.agenda[0][0] <= self.now:
                await heapq.heappop(self.agenda)[2]()
            await self.life.turn()
            self.turns += 1
            following = [self.now + self.life.wait(), until]
            if self.agenda:
                following.append(self.agenda[0][0])
            self.clock.advance(max(min(following) - self.now, TICK))
            await asyncio.gather(*(cloud.tick() for cloud in self.clouds.values()))

    async def die(self, steps: int, down_s: float) -> None:
        """Kill the process after so many steps of whatever it does next, and start another one later."""
        self.clock.advance(TICK)
        working = asyncio.create_task(self.life.turn())
        for _ in range(steps):
            await asyncio.sleep(0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await self.restart(down_s)

    async def restart(self, down_s: float) -> None:
        """The process dies, and another one starts on its ledger."""
        self.switch.app = None
        await self.life.drop()
        died_at = self.now
        self.clock.advance(down_s)
        self.absent.append((died_at, self.now))
        self.life = self.new_life()
        self.lives += 1

    def new_life(self) -> Life:
        """Start a process."""
        return begin(
            Database(self.db_url),
            self.clock,
            self.clouds,
            CLOUDS_URL,
            self.board,
            self.policy,
            self.timing,
            self.switch,
            NODES_URL,
        )


@asynccontextmanager
async def month(db_url: str, seed: int, names: Iterable[str], *, in_slack: bool = False) -> AsyncIterator[Month]:
    """Build it; afterwards everything is closed. `in_slack`: people read in the Slack stand-in."""
    clock = SteppedClock()
    unhurried = replace(SandboxTiming(), enforce_rate_limits=False)
    clouds = sandboxes(clock, unhurried, seed=seed, names=names, bad_rows=True)
    engine = next(iter(clouds.values())).engine
    engine.nodes.every_s = CHECKIN_S
    for cloud in clouds.values():
        account: Any = getattr(cloud, "account", None)
        if hasattr(account, "credit_usd"):
            account.credit_usd = CREDIT_USD
    switch, board = Switch(), Board(clock, lambda _: None)
    policy = Policy(
        approvers=APPROVERS,
        max_open_requests_per_user=20,
        confirm_above_usd=Decimal(10_000),
        digest_channel="C0GPU",
        price_tolerance=PRICE_TOLERANCE,
    )
    timing = replace(Timing(), sweep_s=SWEEP_S, boot_poll_s=BOOT_POLL_S)
    engine.nodes._client = httpx.AsyncClient(transport=Wire(switch), trust_env=False)
    dark: dict[str, list[tuple[datetime, datetime]]] = {name: [] for name in clouds}

    def is_dark(path: str) -> bool:
        return any(start <= clock.now() < end for start, end in dark[path.split("/")[1]])

    # A month's check-ins come together, and nothing else comes in a pause of real time.
    with wired(Wire(build_app(clouds, tick_s=None), is_dark)), mock.patch.object(checkins, "GROUP_EVERY_S", 0.0):
        async with AsyncExitStack() as stack:
            if in_slack:
                board.slack = await stack.enter_async_context(stand_in(clock, (*APPROVERS, *OWNERS)))
            life = begin(Database(db_url), clock, clouds, CLOUDS_URL, board, policy, timing, switch, NODES_URL)
            built = Month(
                seed, Random(seed), db_url, clock, clouds, engine, switch, board, life, policy, timing, dark=dark
            )
            try:
                yield built
            finally:
                await built.life.drop()
                await engine.nodes.close()
                await engine.ssh_ports.close_all()


def slack(name: str) -> Actor:
    """Somebody in the workspace."""
    return Actor(ActorKind.SLACK, name, "T1")
