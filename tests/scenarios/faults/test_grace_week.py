"""A simulated week with each trouble of machines once a day: what waiting costs decides, and nothing else ends them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.services.sessions import idle_termination
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance
from providers.sandbox.vast.account import Contract
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.agents import listening
from tests.support.clock import SteppedClock
from tests.support.world import World, checked_world

DAYS = 7
STEP_S = 120.0
HOURS = Decimal(4)
MINUTE = timedelta(minutes=1)


@dataclass
class Day:
    """The machines of one day, by their trouble."""

    rows: dict[str, Instance] = field(default_factory=dict)


def vast(w: World) -> VastSandbox:
    cloud = w.clouds["vast"]
    assert isinstance(cloud, VastSandbox)
    return cloud


def contract(w: World, row: Instance) -> Contract:
    return vast(w).account.instances[int(row.ref or 0)]


async def pass_time(w: World, seconds: float) -> None:
    """Let time pass as the ticker would, with the agents reporting."""
    for _ in range(int(seconds / STEP_S)):
        w.clock.advance(STEP_S)
        await vast(w).tick()
        await idle_termination.idle_terminations_due(w.ctx)
        await w.settle(3)


async def rent(w: World, **changes: Any) -> Instance:
    request_id = await w.running(candidates=("vast",), **{"hours": HOURS, **changes})
    return (await w.view(request_id)).instances[-1]


def told(w: World, row: Instance, **changes: Any) -> None:
    """Set what the agent of a machine reports."""
    agent = w.engine.nodes.running[f"vast/{row.ref}"]
    for name, value in changes.items():
        setattr(agent, name, value)


async def morning(w: World) -> Day:
    """Rent the machines of a day, and let each but the last one meet its trouble."""
    day = Day()
    day.rows["offline"] = await rent(w)
    day.rows["outbid"] = await rent(w, spot=SpotPolicy.YES)
    day.rows["expired"] = await rent(w)
    day.rows["job"] = await rent(w, run="python tokenize.py")
    day.rows["silent, ssh answers"] = await rent(w, hours=Decimal(10))
    day.rows["silent and dear"] = await rent(w, hours=Decimal(10))
    day.rows["silent and cheap"] = await rent(w, hours=Decimal(2))
    await pass_time(w, 2 * STEP_S)
    vast(w).disturb(str(day.rows["offline"].ref), "offline")
    vast(w).disturb(str(day.rows["outbid"].ref), "outbid_a")
    vast(w).disturb(str(day.rows["expired"].ref), "expire")
    told(w, day.rows["job"], utilisation=[0.0], machine={"cpu_percent": 0, "logins": 0})
    told(w, day.rows["silent, ssh answers"], silent=True)
    for name in ("silent and dear", "silent and cheap"):
        told(w, day.rows[name], silent=True)
        contract(w, day.rows[name]).reachable_s = 1e9
    return day


async def states(w: World, day: Day) -> dict[str, InstanceState]:
    rows = {row.id: row for row in (await w.books()).instances}
    return {name: rows[row.id].state for name, row in day.rows.items()}


async def one_day(w: World) -> None:
    live, day = InstanceState.LIVE, await morning(w)
    await pass_time(w, 14 * 60)
    # Nothing ends earlier than without grace, and what is too expensive to keep ends no later.
    assert set((await states(w, day)).values()) == {live}
    await pass_time(w, 16 * 60)
    after = await states(w, day)
    assert after.pop("silent and dear") is not live
    assert set(after.values()) == {live}, after
    vast(w).disturb(str(day.rows["offline"].ref), "online")
    vast(w).disturb(str(day.rows["outbid"].ref), "outbid_over")
    # The credit is gone for an hour: everything stops, and starts again by itself.
    vast(w).disturb(str(day.rows["job"].ref), "credit_gone")
    await pass_time(w, 3600)
    after = await states(w, day)
    assert {name for name, state in after.items() if state is not live} == {"silent and dear"}
    account = vast(w).account
    account.credit_usd = account.spent_usd() + 1000
    await pass_time(w, 900)
    rows = {row.id: row for row in (await w.books()).instances}
    for name in ("offline", "outbid", "job", "silent, ssh answers"):
        assert (rows[day.rows[name].id].status, rows[day.rows[name].id].wanted) == ("running", None), name
    # The rest of the day.
    for _ in range(22):
        await pass_time(w, 3 * STEP_S)
        w.clock.advance(1800)
        await w.settle(4)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_week_with_every_trouble_once_a_day(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w, listening(w):
        w.tune(price_tolerance=Decimal(3), replacements=0)
        for _ in range(DAYS):
            await one_day(w)
        books = await w.books()
        ends = Counter(row.outcome_code for row in books.instances)
        assert ends["no_heartbeat"] == DAYS
        # Everything else ended at its approved end.
        assert ends["reservation_over"] == 6 * DAYS, ends
        assert {session.state for session in books.sessions} == {SessionState.TERMINATED}
        assert all(grace.spent_usd <= grace.limit_usd for grace in books.graces)
        assert {grace.outcome for grace in books.graces} == {"recovered", "ended"}
        assert Counter(grace.code for grace in books.graces)["no_heartbeat"] == DAYS
        incidents = [note for note in books.notifications if note.subject.endswith("/account")]
        assert len(incidents) == 1
