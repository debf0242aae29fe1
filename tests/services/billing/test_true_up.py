"""What clouds really charged ends up in the ledger, once, with late lines; a bill that never comes is an alarm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest
from sqlalchemy import delete

from bot.rules.budgets.budget import Period
from bot.services.billing import costs, metering, true_up
from bot.services.instances import launch
from ledger.core.writes import book
from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import InstanceState, NotificationKind, OrphanState, SessionState
from ledger.models import BillLine, GrantRow, Instance
from providers.contract import Charge, Provider
from providers.errors import Unavailable
from tests.services.runtime.test_recovery_mode import rowless
from tests.support import rows
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import InFront, Silent
from tests.support.world import World, world


class Billed(InFront):
    """A cloud whose bill is seen through `change`."""

    def __init__(self, inner: Provider, change: Callable[[tuple[Charge, ...]], tuple[Charge, ...]]) -> None:
        super().__init__(inner)
        self.change = change

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        return self.change(await self.inner.charges(since, until))


async def entries(w: World) -> list[Any]:
    return [e for e in (await w.books()).entries if e.kind == "true_up"]


def through(w: World, change: Callable[[tuple[Charge, ...]], tuple[Charge, ...]]) -> None:
    inner = w.ctx.providers["vast"]
    inner = inner.inner if isinstance(inner, Billed) else inner
    w.use({"vast": cast("Provider", Billed(inner, change))})


@pytest.mark.both_databases
@pytest.mark.slow
async def test_the_ledger_says_what_the_cloud_charged_and_learns_of_late_lines(w: World) -> None:
    request_id = await w.running(candidates=("vast",))
    w.clock.advance(1800)
    await w.settle()
    await w.end(request_id)
    await w.run(150, 15)
    (row,) = (await w.books()).instances
    session_id, too_much = row.session_id, Decimal("0.10")
    async with w.ctx.db.write() as tx:
        await book(
            tx, key="guess", kind=EntryKind.ACCRUE, debit=f"session:{session_id}", credit=f"payable:vast:{row.account}",
            amount_usd=too_much, at=w.clock.now(), session_id=session_id, instance_id=row.id, component="gpu",
        )  # fmt: skip
    through(w, lambda _: ())
    assert await true_up.reconcile_due(w.ctx) == 0  # The bill is late, so nothing is known yet.
    w.clock.advance(3 * 86_400)
    through(w, lambda lines: lines)
    other = w.replica()
    try:
        await asyncio.gather(true_up.reconcile_due(w.ctx), true_up.reconcile_due(other.ctx))
    finally:
        await other.ctx.db.close()
    (charged,) = {sum((c.amount_usd for c in await lines_of(w, row)), Decimal(0))}
    assert abs((await w.session(session_id)).accrued_usd - charged) < Decimal("0.00001")
    booked = len(await entries(w))
    assert booked > 0
    assert await true_up.reconcile_due(w.ctx) == 0  # It says so already.
    through(w, lambda lines: (*lines, replace(lines[0], line_id="late", component="bandwidth", amount_usd=Decimal(1))))
    assert await true_up.reconcile_due(w.ctx) == 1
    assert abs((await w.session(session_id)).accrued_usd - charged - 1) < Decimal("0.00001")
    late = [e for e in await entries(w) if e.component == "bandwidth"]
    assert [(e.debit, e.amount_usd) for e in late] == [(f"session:{session_id}", Decimal(1))]
    through(w, lambda lines: tuple(replace(c, amount_usd=c.amount_usd / 2) for c in lines))
    assert await true_up.reconcile_due(w.ctx) > 0
    assert (await entries(w))[-1].credit == f"session:{session_id}"
    through(w, lambda lines: tuple(replace(c, amount_usd=c.amount_usd) for c in lines if c.line_id != "late"))
    await true_up.reconcile_due(w.ctx)


async def lines_of(w: World, row: Instance) -> list[Charge]:
    now = w.clock.now()
    found = await w.ctx.providers["vast"].charges(now - timedelta(days=8), now)
    return [line for line in found if line.ref == row.ref]


async def test_a_bill_that_does_not_come_pages_once_and_a_silent_cloud_stops_nothing(w: World) -> None:
    request_id = await w.running(candidates=("vast",))
    await w.end(request_id)
    await w.run(150, 15)
    through(w, lambda _: ())
    w.clock.advance(4 * 86_400 + 60)
    for _ in range(3):
        assert await true_up.reconcile_due(w.ctx) == 0
        w.clock.advance(3600)
    pages = [n for n in (await w.books()).notifications if n.kind is NotificationKind.OPERATOR_PAGE]
    assert [n.subject.partition("/")[2] for n in pages] == ["uncleared"]
    assert "is missing four days after its end" in pages[0].body["text"]

    def away(_: tuple[Charge, ...]) -> tuple[Charge, ...]:
        raise Unavailable("vast", "the cloud is away")

    through(w, away)
    assert await true_up.reconcile_due(w.ctx) == 0


@pytest.mark.both_databases
async def test_what_belongs_to_no_session_costs_while_it_waits_and_is_corrected_by_its_bill(w: World) -> None:
    through(w, lambda lines: lines)
    stray = await rowless(w)
    w.clock.advance(2 * 3600)
    assert await metering.accrue_due(w.ctx) > 0
    assert await metering.accrue_due(w.ctx) == 0
    before = await strays_cost(w)
    assert before == 2 * stray.price_usd_h
    w.clouds["vast"].disturb(stray.ref, "vanish")
    await w.run(90, 30)
    assert [one.state for one in (await w.books()).orphans] == [OrphanState.GONE]
    assert await strays_cost(w) > before
    w.clock.advance(3 * 86_400)
    through(w, times(Decimal("1.5")))  # More than its time can have cost, so nothing is booked without a person.
    assert await true_up.reconcile_due(w.ctx) == 0
    for factor in (Decimal("0.5"), Decimal(1)):  # Less than was booked, and then more.
        through(w, times(factor))
        other = w.replica()
        both = await asyncio.gather(true_up.reconcile_due(w.ctx), true_up.reconcile_due(other.ctx))
        await other.ctx.db.close()
        assert sum(both) > 0
        assert await true_up.reconcile_due(w.ctx) == 0
        assert abs(await strays_cost(w) - w.bill() * factor) < Decimal("0.0001")
    told = [one.subject for one in (await w.books()).events if one.kind == "stray.trued_up"]
    assert set(told) == {stray.id}
    through(w, lambda lines: lines)
    await true_up.reconcile_due(w.ctx)
    assert not [one for one in await w.violations() if "bill" in one]
    through(w, lambda _: ())
    async with w.ctx.db.write() as tx:
        await tx.execute(delete(BillLine))
    w.clock.advance(4 * 86_400)
    await true_up.reconcile_due(w.ctx)
    pages = [str(n.body["text"]) for n in (await w.books()).notifications if n.subject == f"{stray.id}/uncleared"]
    assert [f"for orphan {stray.id} (instance {stray.ref}) is missing" in text for text in pages] == [True]


def times(factor: Decimal) -> Callable[[tuple[Charge, ...]], tuple[Charge, ...]]:
    return lambda lines: tuple(replace(one, amount_usd=one.amount_usd * factor) for one in lines)


async def strays_cost(w: World) -> Decimal:
    """What the costs show for what nobody asked for, which is all that there is."""
    found = await costs.overview(w.ctx, None, Period.TOTAL)
    (share,) = found.groups["owner"]
    assert (share[0], [name for name, _ in found.groups["cloud"]]) == (costs.ORPHANS, ["vast"])
    assert share[1] == found.total_usd
    return share[1]


async def test_a_cloud_that_says_nothing_leaves_a_range_in_which_its_charge_lies(w: World) -> None:
    silent = Silent(w.ctx.providers["vast"])
    w.use({"vast": cast("Provider", silent)})
    request_id = await w.running(candidates=("vast",))
    w.clock.advance(1800)
    await w.settle()
    await w.end(request_id)
    await w.run(150, 15)
    (row,) = (await w.books()).instances
    between = true_up.bounds(w.ctx, row)
    assert between is not None
    assert between[0] <= w.bill() <= between[1] < between[0] * 2
    assert await true_up.range_of(w.ctx, row.session_id) == between
    assert await true_up.reconcile_due(w.ctx) == 0
    w.use({"vast": silent.inner})
    assert true_up.bounds(w.ctx, row) is None


@pytest.mark.parametrize("from_active", [False, True])
@pytest.mark.slow
async def test_a_log_of_times_corrects_no_price_and_leaves_a_range(w: World, from_active: bool) -> None:
    if from_active:
        w.arm("billed_from_active", "lambda")
    request_id = await w.running(candidates=("lambda",))
    w.clouds["lambda"].reprice("*", Decimal(2))  # What others pay from now on.
    w.clock.advance(1800)
    if from_active:
        w.clouds["lambda"].disturb(w.instances()[0].ref, "preempted")  # From now on it is billed no further.
        w.clock.advance(240)
    await w.settle()
    await w.end(request_id)
    await w.run(150, 15)
    (row,) = (await w.books()).instances
    before = (await w.session(row.session_id)).accrued_usd
    await true_up.reconcile_due(w.ctx)
    after = (await w.session(row.session_id)).accrued_usd
    assert abs(after - before) <= row.price_usd_h / 60  # A minute that was begun.
    between = true_up.bounds(w.ctx, row)
    assert between is not None
    rounding = Decimal("0.000001")
    assert between[0] - rounding <= w.bill() <= between[1] + rounding
    assert between[0] <= after <= between[1]


@pytest.mark.parametrize("cloud", ["tensordock", "vast"])
@pytest.mark.slow
async def test_an_instance_that_nobody_saw_may_have_cost_what_it_did_until_it_was_given_up(
    w: World, cloud: str
) -> None:
    w.arm("create_lost_reply", cloud)
    request_id = await w.approved(candidates=(cloud,))
    await launch.send_due(w.ctx)
    w.clock.advance(300)
    w.clouds[cloud].disturb(w.instances()[0].ref, "vanish")
    w.clock.advance(600)
    await w.run(60, 15)
    await w.end(request_id)
    await w.run(60, 15)
    row = (await w.view(request_id)).instances[0]
    assert (row.state, row.ref) == (InstanceState.TOMBSTONE, None)
    between = true_up.bounds(w.ctx, row)
    assert between is not None
    assert between[0] == 0 < w.bill() <= between[1]
    assert await true_up.range_of(w.ctx, row.session_id) == between


async def test_a_refused_create_cost_nothing(w: World) -> None:
    w.use({"tensordock": cast("Provider", Silent(w.ctx.providers["tensordock"]))})
    w.arm("create_out_of_stock", "tensordock")
    request_id = await w.approved(candidates=("tensordock",))
    await launch.send_due(w.ctx)
    row = (await w.view(request_id)).instances[0]
    assert row.state is InstanceState.REJECTED
    assert row.sent_at is not None
    assert true_up.bounds(w.ctx, row) is None


async def test_a_session_of_two_machines_counts_what_is_known_of_one(db: Database, clock: SteppedClock) -> None:
    async with world(db, clock) as w:
        w.use({"vast": cast("Provider", Silent(w.ctx.providers["vast"]))})
        at, known = w.clock.now(), Decimal(3)
        over: dict[str, Any] = {"ended_at": at + timedelta(hours=1)}
        async with w.ctx.db.write() as tx:
            session = await rows.session(tx, SessionState.TERMINATED, at=at, **over)
            live = await rows.session(tx, SessionState.RUNNING, at=at)
            gone: dict[str, Any] = {"state": InstanceState.GONE, "at": at, "sent_at": at, **over}
            told = await rows.instance(tx, of=session, cloud="runpod", **gone)
            under = await tx.get_one(GrantRow, told.grant_id)
            silent = await rows.instance(tx, of=session, under=under, n=2, cloud="vast", **gone)
            other = await rows.instance(tx, of=live, cloud="vast", **gone)
            for key, row, amount in (("told", told, known), ("silent", silent, Decimal(50))):
                await book(
                    tx, key=key, kind=EntryKind.ACCRUE, debit=f"session:{session.id}", credit=f"payable:{row.cloud}:x",
                    amount_usd=amount, at=at, session_id=session.id, instance_id=row.id, component="gpu",
                )  # fmt: skip
        between = true_up.bounds(w.ctx, silent)
        assert between is not None
        assert true_up.bounds(w.ctx, other) is not None
        async with w.ctx.db.read() as tx:
            found = await true_up.ranges(w.ctx, tx, [session.id, live.id])
        assert found == {session.id: (between[0] + known, between[1] + known)}
