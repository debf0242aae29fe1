"""A week in which every trouble comes once a day: nothing is lost that could wait for little money."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from random import Random

import pytest

from bot.services.sessions import idle_termination
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState
from providers.sandbox.agents import SandboxAgent
from providers.sandbox.clock import SandboxTiming
from tests.scenarios.simulation.troubles.keeping import OWN, Seen, broken
from tests.scenarios.simulation.troubles.kinds import Kind, Stretch, Troubles
from tests.scenarios.simulation.troubles.truth import Truth
from tests.support.agents import listening
from tests.support.clock import SteppedClock
from tests.support.world import World, world

DAYS = 7
#: Less than the pause after which a look counts as having been away.
STEP_S = 60.0
HOUR_S = 3600.0
#: Machines that are rented each morning, one at each of these clouds, for the usual longest time.
CLOUDS, HOURS = ("vast", "tensordock"), Decimal(12)
#: When each trouble begins, in hours of the day, and how many hours it lasts.
AT = {
    Kind.CREDIT: (1.0, 1.0),
    Kind.OFFLINE: (3.0, 1.5),
    Kind.AT_ZERO: (5.0, 3.0),
    Kind.SILENT: (8.5, 2.0),
}
#: Nobody works on a machine that never boots: it ends as it always did, by then.
BOOTS_S = 3600.0


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A world that is judged by the test itself, besides the invariants."""
    async with world(db, clock, sandbox=SandboxTiming.quick()) as built:
        yield built
        assert await built.violations() == []


class Week:
    """The machines of each day, and what befalls them."""

    def __init__(self, w: World) -> None:
        self.w, self.troubles = w, Troubles(Random(1))

    async def day(self) -> list[str]:
        """Let one day pass, and return what was lost in it."""
        w = self.w
        began_s = w.clock.monotonic()
        for cloud in CLOUDS:
            await w.running(candidates=(cloud,), hours=HOURS, run="python train.py")
        w.arm("never_boots", "vast")
        unborn = await w.approved(candidates=("vast",), hours=HOURS)
        events = sorted((at_h + part * lasts_h, kind, part) for kind, (at_h, lasts_h) in AT.items() for part in (0, 1))
        begun: dict[Kind, list[Stretch]] = {}
        for at_h, kind, part in events:
            await self.pass_time(began_s + at_h * HOUR_S - w.clock.monotonic())
            if part:
                self.end(kind, begun.get(kind, []))
            else:
                begun[kind] = self.begin(kind)
        await self.pass_time(began_s + 14 * HOUR_S - w.clock.monotonic())
        await self.pass_time(began_s + 24 * HOUR_S - w.clock.monotonic(), 1800.0)
        books = await w.books()
        rows = [row for row in books.instances if row.request_id == unborn and row.live_at and not row.reachable_at]
        until = [(row, row.created_at + timedelta(seconds=BOOTS_S)) for row in rows]
        late = [row.id for row, at in until if row.ended_at is None or row.ended_at > at]
        left = [row.id for row in books.instances if row.state is InstanceState.LIVE]
        seen = Seen(Truth(w.clouds, w.engine), self.troubles, w.clock.now())
        return [
            *broken(seen, books),
            *(f"with nothing to lose it ended too late: {row_id}" for row_id in late),
            *(f"it outlives its end: {row_id}" for row_id in left),
        ]

    def begin(self, kind: Kind) -> list[Stretch]:
        """Let a trouble come."""
        w = self.w
        if kind in (Kind.CREDIT, Kind.OFFLINE):
            here = [(each.cloud, each.ref) for each in w.instances() if each.alive and each.cloud in CLOUDS]
            here = [at for at in here if kind is Kind.CREDIT or at[0] == "vast"]
            for cloud, ref in here:
                w.clouds[cloud].disturb(ref, "credit_gone" if kind is Kind.CREDIT else "offline")
            return [each for cloud, ref in here for each in self.troubles.begin(kind, cloud, [ref], w.clock.now())]
        for agent in self.agents():
            if kind is Kind.SILENT:
                agent.silent = True
            else:
                agent.utilisation = [0.0 for _ in agent.utilisation]
        return []

    def end(self, kind: Kind, begun: list[Stretch]) -> None:
        """Let it be over."""
        for cloud in {stretch.cloud for stretch in begun} if kind is Kind.CREDIT else ():
            self.w.clouds[cloud].disturb("", "credit_back")
        there = {(each.cloud, each.ref) for each in self.w.instances() if each.alive}
        for stretch in begun if kind is Kind.OFFLINE else ():
            if (stretch.cloud, stretch.ref) in there:
                self.w.clouds[stretch.cloud].disturb(stretch.ref, "online")
        self.troubles.end(begun, self.w.clock.now())
        for agent in self.agents() if not begun else ():
            agent.silent, agent.utilisation = False, [93.0 for _ in agent.utilisation]

    def agents(self) -> list[SandboxAgent]:
        """The agents of the machines that run."""
        return list(self.w.engine.nodes.running.values())

    async def pass_time(self, seconds: float, step_s: float = STEP_S) -> None:
        """Let time pass."""
        w, left_s = self.w, seconds
        while left_s > 0:
            w.clock.advance(min(left_s, step_s))
            left_s -= step_s
            await asyncio.gather(*(w.clouds[cloud].tick() for cloud in CLOUDS))
            await idle_termination.idle_terminations_due(w.ctx)
            await w.settle(3)


@pytest.mark.timeout(3600)
async def test_a_week_with_every_trouble_once_a_day_loses_nothing_that_could_wait(w: World) -> None:
    async with listening(w):
        week = Week(w)
        for _ in range(DAYS):
            assert await week.day() == []
        codes = [row.outcome_code for row in (await w.books()).instances if row.reachable_at is not None]
    assert len(codes) >= DAYS * len(CLOUDS)
    assert not OWN & set(codes)
