"""A bill by whole days is a total: however it is cut, a session costs what it cost, and a person confirms any more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest

from bot.services.billing import bill_confirmation, true_up
from ledger.core.writes import book
from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import GrantState, InstanceState, NotificationKind, SessionState
from ledger.models import Instance, Request
from providers.clouds.vast.billing import DAY, charge_lines, midnight
from providers.contract import Charge, Provider
from tests.support import rows
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import InFront
from tests.support.world import BOB, World, world

#: Dollars per day, which is $1.00 for an hour.
A_DAY = 24
LENGTH = timedelta(days=12)


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A world whose session is built as rows, so the journal does not tell how it came about."""
    async with world(db, clock) as built:
        yield built


class ByDay(InFront):
    """A cloud with one contract, whose row is whole or cut to the asked days; `factor` is what it bills too much."""

    ref, factor, component = "7", 1, "gpu"

    def __init__(self, inner: Provider, began: datetime, *, cut: bool) -> None:
        super().__init__(inner)
        self.began, self.cut = began, cut

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        start, end = self.began, min(self.began + LENGTH, until)
        if self.cut:
            start = max(start, midnight(since))
        if end <= start:
            return ()
        last = midnight(end - timedelta(microseconds=1))
        days = (end - start) / DAY
        amount = round(days * A_DAY * self.factor, 6)
        part = {"type": self.component, "amount": amount}
        stamps = {"start": int(midnight(start).timestamp()), "end": int(last.timestamp())}
        row = {**stamps, "type": "instance", "source": f"instance-{self.ref}", "items": [{**stamps, **part}]}
        return tuple(line for line in charge_lines([row]) if line.end > since and line.start < until)


def begun(w: World, *, cut: bool = False) -> ByDay:
    """A contract begins now."""
    cloud = ByDay(w.ctx.providers["vast"], w.clock.now(), cut=cut)
    w.use({"vast": cast("Provider", cloud)})
    return cloud


async def ended(w: World, cloud: ByDay, booked_usd: Decimal) -> Instance:
    """Its session, at $1.00 an hour under a cap of $1.05, ends now, and so much is booked for it."""
    now, at = w.clock.now(), cloud.began
    async with w.ctx.db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING, at=at)
        asked, cap = await tx.get_one(Request, session.request_id), Decimal("1.05")
        over: dict[str, Any] = {"ended_at": now, "billing_until": now, "price_usd_h": Decimal(1)}
        row = await rows.instance(
            tx, InstanceState.GONE, of=session, at=at, ref=cloud.ref, cloud="vast", account=cloud.account, **over,
            under=await rows.grant(tx, asked, GrantState.USED, at=at, session_id=session.id, price_cap_usd_h=cap),
        )  # fmt: skip
        await book(
            tx, key=f"{row.id}/gpu/all", kind=EntryKind.ACCRUE, debit=f"session:{row.session_id}",
            credit=f"payable:vast:{row.account}", amount_usd=booked_usd, at=now, session_id=row.session_id,
            instance_id=row.id, component="gpu",
        )  # fmt: skip
    return row


async def pass_days(w: World, days: int) -> None:
    for _ in range(days):
        w.clock.advance(DAY.total_seconds())
        await true_up.reconcile_due(w.ctx)


async def pages(w: World) -> list[str]:
    books = await w.books()
    return [str(n.body["text"]) for n in books.notifications if n.kind is NotificationKind.OPERATOR_PAGE]


@pytest.mark.both_databases
@pytest.mark.parametrize("cut", [False, True])
async def test_a_session_of_twelve_days_costs_288_dollars_however_the_bill_is_cut(w: World, cut: bool) -> None:
    cloud = begun(w, cut=cut)
    await pass_days(w, 12)
    row = await ended(w, cloud, Decimal(288))
    await pass_days(w, 12)
    assert (await w.session(row.session_id)).accrued_usd == 288
    assert await pages(w) == []


@pytest.mark.parametrize("cut", [False, True])
async def test_the_ledger_follows_a_bill_that_the_approved_rate_explains(w: World, cut: bool) -> None:
    cloud = begun(w, cut=cut)
    await pass_days(w, 12)
    row = await ended(w, cloud, Decimal(290))
    await pass_days(w, 1)
    assert (await w.session(row.session_id)).accrued_usd == 290  # The last day may still grow.
    await pass_days(w, 4)
    assert (await w.session(row.session_id)).accrued_usd == 288
    assert await pages(w) == []


async def test_more_than_the_approved_rate_is_booked_only_by_a_person(w: World) -> None:
    cloud = begun(w)
    await pass_days(w, 12)
    cloud.factor = 5
    row = await ended(w, cloud, Decimal(288))
    await pass_days(w, 6)
    assert (await w.session(row.session_id)).accrued_usd == 288
    (page,) = await pages(w)
    assert "vast bills $1,440.00 for session" in page
    assert f"gpu-shopper bills confirm {row.id} --amount 1440.00" in page
    (waiting,) = await bill_confirmation.unconfirmed(w.ctx)
    assert (waiting.id, waiting.billed_usd, waiting.booked_usd) == (row.id, Decimal(1440), Decimal(288))
    assert 12 * 24 < waiting.most_usd < 12 * 24 * Decimal("1.06")

    async def confirm(row_id: str, amount: int, reason: str = "the invoice says so") -> str:
        return str((await bill_confirmation.confirm(w.ctx, row_id, Decimal(amount), BOB, reason)).code)

    assert await confirm(row.id, 1440, " ") == "reason_needed"
    assert await confirm("ins_none", 1440) == "unknown_id"
    assert await confirm(row.id, 1439) == "amount_mismatch"
    assert (await w.session(row.session_id)).accrued_usd == 288
    assert await confirm(row.id, 1440) == "bill_confirmed"
    assert (await w.session(row.session_id)).accrued_usd == 1440
    assert await confirm(row.id, 1440) == "stale"
    assert await bill_confirmation.unconfirmed(w.ctx) == []
    trued = [e for e in (await w.books()).events if e.kind == "session.trued_up"]
    assert [(e.actor, e.reason.endswith("the invoice says so")) for e in trued] == [(BOB.ref, True)]


async def test_traffic_has_no_rate_and_is_booked_as_it_is_billed(w: World) -> None:
    cloud = begun(w)
    cloud.component = "bwd"
    await pass_days(w, 12)
    row = await ended(w, cloud, Decimal("0.01"))
    await pass_days(w, 3)
    assert (await w.session(row.session_id)).accrued_usd == 288
