"""Simulated market hours: prices move, requests wait, people approve in advance, and processes are killed in between.

`--soak` simulates 1,000 hours: ten markets of 100 hours, each with a seed of its own, so that they run side by side.
A failure names its seed; `MARKET_SEED` plays one again.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from sqlalchemy import select

from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.services.approvals import advance
from bot.services.approvals.advance import Revoke
from bot.services.instances import launch
from bot.services.requests import quoting, waiting
from bot.services.runtime.context import Context
from ledger.engine.db import Database
from ledger.kernel.states import OPEN_INSTANCE, GrantState, RequestState
from ledger.models import AdvanceApproval, Approval, Instance, Request, Session
from tests.support.clock import SteppedClock
from tests.support.tables import TABLE
from tests.support.world import ALICE, BOB, CAROL, DAVE, World, facts, world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
STEP_S = 900.0
HOURS, SOAK_HOURS = 24, 100
FIRST_SEED, SOAK_MARKETS = 20260302, 10
#: How often everything is checked, in steps.
CHECK_EVERY = 16
#: How far prices may move from where they began.
LOWEST, HIGHEST = Decimal("0.4"), Decimal("2.5")
KILLED: tuple[Callable[[Context], Awaitable[int]], ...] = (waiting.look_due, quoting.quote_due, launch.send_due)


@dataclass
class Market:
    """One run: its seed and dice, its world, and how often each thing happened."""

    w: World
    seed: int
    dice: random.Random
    level: dict[str, Decimal] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    async def step(self) -> None:
        """Move prices and people, let a job be killed, and let the time of one step pass."""
        self.move_prices()
        for act in (self.ask, self.approve, self.revoke, self.cancel, self.reject):
            await act()
        await self.kill()
        await self.w.run(STEP_S, STEP_S / 3)

    def move_prices(self) -> None:
        for name, cloud in self.w.clouds.items():
            factor = Decimal(str(round(self.dice.uniform(0.75, 1.3), 3)))
            level = self.level.get(name, Decimal(1)) * factor
            if LOWEST <= level <= HIGHEST:
                self.level[name] = level
                self.counts["price"] += bool(cloud.reprice("*", factor))

    async def ask(self) -> None:
        """Ask to wait, with limits of which some are met soon and some never."""
        if self.dice.random() > 0.5:
            return
        price = Decimal(str(round(self.dice.uniform(0.05, 0.6), 3)))
        changes: dict[str, object] = {"wait": True, "max_price_usd_h": price, "hours": Decimal(1)}
        changes["wait_until"] = self.dice.choice(["45m", "3h", "9h"])
        if self.dice.random() < 0.3:
            changes["start_at"] = "30m"
        if self.dice.random() < 0.3:
            changes["budget_cap_usd"] = Decimal(str(round(self.dice.uniform(0.05, 1), 2)))
        reply = await self.w.ask(self.dice.choice([ALICE, DAVE]), **changes)
        self.counts[str(reply.code)] += 1

    async def _waiting(self) -> Request | None:
        async with self.w.ctx.db.read() as tx:
            found = list(await tx.scalars(select(Request).where(Request.state == RequestState.WAITING)))
        return self.dice.choice(found) if found else None

    async def approve(self) -> None:
        request = await self._waiting()
        if request is not None and self.dice.random() < 0.7:
            cap = job_of(request.job).budget_cap_usd
            lower = cap * Decimal("0.9") if cap and self.dice.random() < 0.3 else None
            reply = await self.w.decide(request.id, self.dice.choice([BOB, CAROL]), cap_usd=lower)
            self.counts[str(reply.code)] += 1

    async def revoke(self) -> None:
        request = await self._waiting()
        if request is not None and self.dice.random() < 0.2:
            who = facts(self.dice.choice([BOB, CAROL]))
            self.counts[str((await advance.revoke(self.w.ctx, Revoke(request.id, who))).code)] += 1

    async def cancel(self) -> None:
        request = await self._waiting()
        if request is not None and self.dice.random() < 0.05:
            actor = ALICE if request.requester == ALICE.ref else DAVE
            self.counts[str((await self.w.cancel(request.id, actor)).code)] += 1

    async def reject(self) -> None:
        request = await self._waiting()
        if request is not None and self.dice.random() < 0.05:
            self.counts[str((await self.w.decide(request.id, BOB, "reject", reason="no")).code)] += 1

    async def kill(self) -> None:
        """Begin a job and end its process somewhere in it; another one takes over when its claim has run out."""
        job, turns = self.dice.choice(KILLED), self.dice.randrange(60)
        if self.dice.random() > 0.5:
            return
        task = asyncio.ensure_future(job(self.w.ctx))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done = await asyncio.gather(task, return_exceptions=True)
        self.counts["killed"] += isinstance(done[0], asyncio.CancelledError)
        # A create whose reply nobody waits for any more is found by its label; let that be looked for.
        await self.w.settle(2)

    async def check(self) -> None:
        """Check that no limit was exceeded, no request has two machines, and each approval in advance is used once."""
        assert not await self.w.violations()
        async with self.w.ctx.db.read() as tx:
            rows = list(await tx.scalars(select(Instance).where(Instance.state.in_(OPEN_INSTANCE))))
            votes = list(await tx.scalars(select(Approval).where(Approval.source_approval_id.is_not(None))))
            given = {row.id: row for row in await tx.scalars(select(AdvanceApproval))}
            sessions = list(await tx.scalars(select(Session.request_id)))
        assert all(count == 1 for count in Counter(row.request_id for row in rows).values())
        assert all(count == 1 for count in Counter(sessions).values())
        assert all(count == 1 for count in Counter(vote.source_approval_id for vote in votes).values())
        for vote in votes:
            row = given[str(vote.source_approval_id)]
            assert row.state is GrantState.USED
            assert vote.price_cap_usd_h is not None
            assert vote.total_cap_usd is not None
            assert vote.price_cap_usd_h <= row.price_cap_usd_h
            assert vote.total_cap_usd <= row.total_cap_usd
            assert row.at <= vote.at < row.until
        self.counts["used"] = len(votes)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One market, or ten with `--soak`; `MARKET_SEED` names the only one."""
    markets = SOAK_MARKETS if metafunc.config.getoption("--soak") else 1
    asked = os.environ.get("MARKET_SEED")
    metafunc.parametrize("seed", [int(asked)] if asked else range(FIRST_SEED, FIRST_SEED + markets))


@pytest.fixture
async def market(db: Database, clock: SteppedClock, seed: int) -> AsyncIterator[Market]:
    policy = Policy(
        approvers=(BOB.id, CAROL.id),
        max_open_requests_per_user=200,
        max_requests_per_hour=1000,
        request_ttl_s=3600,
    )
    async with world(db, clock, policy=policy) as built:
        yield Market(built, seed, random.Random(seed))


async def test_limits_hold_while_prices_move_and_processes_die(
    market: Market, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> None:
    hours = SOAK_HOURS if pytestconfig.getoption("--soak") else HOURS
    for number in range(int(hours * 3600 / STEP_S)):
        await market.step()
        if number % CHECK_EVERY == 0:
            await market.check()
    await market.check()
    await market.w.heal()
    await market.check()
    assert not await market.w.violations(healed=True)
    # The run was worth something only if everything happened in it.
    for what in ("submitted", "in_advance", "revoked", "cancelled", "rejected", "killed", "used", "price"):
        assert market.counts[what] > 0, (what, market.counts)
    happened = ", ".join(f"{what} {count:,}" for what, count in sorted(market.counts.items()))
    record_property(TABLE, f"{hours:,} hours, MARKET_SEED={market.seed}: {happened}")
