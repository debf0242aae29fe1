"""Accruals: hour by hour and at the end what the cloud bills, however often and by however many they are booked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import pytest

from bot.rules.billing.metering import so_far
from bot.services.billing import metering
from bot.services.checkpoints import hold
from bot.services.instances import reconcile
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, OrphanState
from ledger.models import GrantRow
from ledger.queries.audit import Books
from providers.contract import Listing, Provider
from providers.sandbox.clock import SandboxTiming
from tests.support import rows
from tests.support.clock import SteppedClock
from tests.support.matrix import on_clouds
from tests.support.proxy_provider import InFront
from tests.support.world import World, checked_world, world


def accrued(books: Books) -> Decimal:
    return sum((entry.amount_usd for entry in books.entries if entry.kind == "accrue"), Decimal(0))


@on_clouds(free=False)
async def test_hours_and_the_rest_add_up_to_the_bill(w: World, cloud: str) -> None:
    request_id = await w.running(candidates=(cloud,), hours=Decimal(5))
    assert accrued(await w.books()) == 0
    await w.run(2.5 * 3600, 1800)
    books = await w.books()
    row = books.instances[0]
    billed = {"gpu", "storage"} if row.storage_usd_h > 0 else {"gpu"}
    assert {entry.component for entry in books.entries if entry.kind == "accrue"} == billed
    assert abs(accrued(books) - 2 * row.price_usd_h) < Decimal("0.0001")
    await w.end(request_id)
    await w.run(120, 30)
    assert abs(accrued(await w.books()) - w.bill()) <= w.bill() / 100


class Dearer(InFront):
    """A cloud that bills what runs at `factor` times its price."""

    factor = Decimal(1)

    async def list(self) -> Listing:
        found = await self.inner.list()
        items = [replace(one, price_usd_h=(one.price_usd_h or 0) * self.factor) for one in found.items]
        return replace(found, items=tuple(items))


@pytest.mark.both_databases
async def test_a_rate_that_rises_or_falls_within_an_hour_keeps_what_was_used_before(
    db: Database, clock: SteppedClock
) -> None:
    async with world(db, clock, sandbox=SandboxTiming.quick()) as w:
        w.tune(price_tolerance=Decimal(3))
        cloud = Dearer(w.ctx.providers["vast"])
        w.use({"vast": cast("Provider", cloud)})
        request_id = await w.running(candidates=("vast",), hours=Decimal(6))
        (row,) = (await w.books()).instances
        assert row.billing_from is not None
        deadline = (await w.session(row.session_id)).session.deadline
        since, billed, quoted = row.billing_from, Decimal(0), row.price_usd_h
        for factor, price in (("1.5", "1"), ("0.5", "1.5"), ("0.5", "0.5")):
            w.clock.advance(5400)  # An hour is over and is not booked yet.
            billed += quoted * Decimal(price) * Decimal((w.clock.now() - since) / timedelta(hours=1))
            since = w.clock.now()
            for look in ("before", "after"):
                shown = await w.session(row.session_id)
                cost = metering.cost_now(w.ctx, shown, since)
                assert abs(cost / billed - 1) < Decimal("0.01"), (factor, look)
                async with w.ctx.db.read() as tx:
                    grant = await tx.get_one(GrantRow, row.grant_id)
                    left = await hold.left_usd(w.ctx, tx, row, since)
                    assert abs(grant.total_cap_usd - billed - left) < billed / 100
                cloud.factor = Decimal(factor)
                other = w.replica()
                await asyncio.gather(reconcile.observe(w.ctx, "vast"), reconcile.observe(other.ctx, "vast"))
                await other.ctx.db.close()
                row = (await w.books()).instances[0]
        assert (await w.session(row.session_id)).session.deadline == deadline
        await w.end(request_id)
        await w.run(150, 15)
        spent = (await w.session(row.session_id)).accrued_usd
        assert abs(spent / billed - 1) < Decimal("0.01")
        steps = [one.component for one in (await w.books()).entries if one.kind == "true_up"]
        assert steps == ["gpu", "gpu"]


async def test_what_a_replacement_costs_comes_on_top_of_its_predecessor_at_its_own_rate(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        await w.running(candidates=("vast",))
        w.clock.advance(600)
        (first,) = (await w.books()).instances
        w.clouds["vast"].disturb(str(first.ref), "vanish")
        await w.run(160, 20)
        before = (await w.session(first.session_id)).accrued_usd
        assert before > 0
        w.clock.advance(1800)
        shown, now = await w.session(first.session_id), w.clock.now()
        row = shown.instance
        assert row is not None
        assert row.id != first.id
        assert row.billing_from is not None
        runs = row.price_usd_h * Decimal((now - row.billing_from) / timedelta(hours=1))
        assert abs(metering.cost_now(w.ctx, shown, now) - before - runs) < runs / 50
        # In all it may cost what was approved, and not what is left of that.
        assert shown.cap_usd == (await w.books()).approvals[0].total_cap_usd


async def test_an_hour_that_is_over_between_an_end_and_its_proof_is_not_booked(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(replacements=0)
        await w.running(candidates=("vast",))
        (row,) = (await w.books()).instances
        assert row.billing_from is not None
        w.clock.advance(row.billing_from + timedelta(seconds=3580) - w.clock.now())
        w.clouds["vast"].disturb(str(row.ref), "vanish")
        await w.run(150, 15)
        assert abs(accrued(await w.books()) - w.bill()) <= w.bill() / 100


@pytest.mark.both_databases
async def test_booking_again_changes_nothing(w: World) -> None:
    await w.running(hours=Decimal(6))
    w.clock.advance(3 * 3600)
    assert await metering.accrue_due(w.ctx) > 0
    booked = accrued(await w.books())
    replicas = [w.replica() for _ in range(3)]
    assert sum(await asyncio.gather(*(metering.accrue_due(one.ctx) for one in (w, *replicas)))) == 0
    for one in replicas:
        await one.ctx.db.close()
    assert accrued(await w.books()) == booked


@pytest.mark.both_databases
async def test_replicas_that_book_at_once_book_each_hour_once(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "LOOKED_AT", 2)  # The three are read in two parts.
    w.tune(price_tolerance=Decimal(3))
    for _ in range(3):
        await w.approved(hours=Decimal(6))
    await w.run(60, 30)
    w.clock.advance(4 * 3600)
    replicas = [w.replica() for _ in range(3)]
    await asyncio.gather(*(metering.accrue_due(one.ctx) for one in (w, *replicas)))
    for one in replicas:
        await one.ctx.db.close()
    keys = [entry.key for entry in (await w.books()).entries if entry.kind == "accrue"]
    assert len(keys) == len(set(keys)) == 3 * 2 * 4


async def test_reservations_of_ended_sessions_are_given_back(w: World) -> None:
    request_id = await w.running()
    await w.end(request_id)
    await w.run(120, 30)
    books = await w.books()
    (reserved,) = [entry for entry in books.entries if entry.kind == "reserve"]
    (released,) = [entry for entry in books.entries if entry.kind == "release"]
    assert reserved.amount_usd == released.amount_usd == books.grants[0].total_cap_usd
    assert (reserved.debit, reserved.credit) == (released.credit, released.debit)


async def test_costs_that_are_shown_end_with_the_instance(w: World) -> None:
    request_id = await w.running()
    session = (await w.view(request_id)).session
    assert session is not None
    await w.end(request_id)
    await w.run(120, 30)
    shown = await w.session(session.id)
    assert metering.cost_now(w.ctx, shown, w.clock.now()) == shown.accrued_usd > 0


@on_clouds(free=False)
@pytest.mark.parametrize("lived_s", [9, 84, 3700])
async def test_an_orphan_is_billed_as_a_session_is(db: Database, clock: SteppedClock, cloud: str, lived_s: int) -> None:
    async with world(db, clock) as w:
        began, rate = w.clock.now(), Decimal(2)
        ended = began + timedelta(seconds=lived_s)
        async with w.ctx.db.write() as tx:
            over: dict[str, Any] = {"cloud": cloud, "price_usd_h": rate, "billing_from": began}
            row = await rows.instance(tx, InstanceState.GONE, at=began, ended_at=ended, **over)
            orphan = await rows.stray(
                tx, OrphanState.GONE, first_seen_at=began, last_seen_at=ended, ended_at=ended, **over
            )
        of_session = metering.accruals(w.ctx, row, ended, final=True)
        rule = metering.rule_of(w.ctx, orphan)
        of_orphan = metering.orphan_entries(orphan, ended, rule, final=True)
        assert [one.amount_usd for one in of_orphan] == [one.amount_usd for one in of_session]
        async with w.ctx.db.write() as tx:
            await metering.accrue_orphan(w.ctx, tx, orphan, ended)
        booked = sum((e.amount_usd for e in (await w.books()).entries if e.kind == "loss"), Decimal(0))
        assert booked == so_far(began, ended, rate, w.ctx.providers[cloud].capabilities.billing)
        assert booked >= rate * lived_s / 3600 - Decimal("0.000001")
