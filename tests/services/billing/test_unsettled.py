"""What an instance may have cost beyond its likely end counts everywhere, until a bill or 30 days settle it."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import pytest
from sqlalchemy import update

from bot.api.views import session_out
from bot.cli.terminal.views import session_details
from bot.cli.terminal.wording import when as moment
from bot.rules.access.sight import Sight
from bot.rules.billing.true_up import SETTLED
from bot.rules.budgets.budget import Period
from bot.rules.values.phrases import usd
from bot.services.billing import bill_confirmation, last_use, metering, true_up
from bot.services.billing.focus import focus_csv
from bot.services.budgets import enforcement
from bot.services.instances import termination
from bot.services.instances.unreachable_accounts import write_off
from bot.slack.blocks.elements import when
from bot.slack.blocks.session.session_ready_and_ended import ended as ended_message
from ledger.engine.db import Database
from ledger.kernel.calendar_spans import after, begin
from ledger.kernel.states import InstanceState, RollupTier, SessionState
from ledger.models import Instance, Request
from ledger.queries.session_costs import accrued_of_session, booked, spent_before
from ledger.queries.spend import EVERYBODY, spent
from providers.contract import Provider
from tests.services.billing.test_bills_by_day import begun, ended, pass_days
from tests.services.instances.test_lost import LostReply, in_use, later, off, only
from tests.services.instances.test_undated_ends import LateOrder
from tests.services.instances.test_unreachable_accounts import Empty
from tests.support import rows
from tests.support.clock import START
from tests.support.proxy_provider import Silent
from tests.support.world import BOB, World

HOUR = timedelta(hours=1)
#: Over night, so that hours of two days are booked beyond the end.
WAIT_S = 16 * 3600


async def undated(w: World, front: type[Any], *, silent: bool = False) -> Instance:
    """Its end was ordered, no reply came, and the cloud could not be asked until the next morning."""
    request_id = await in_use(w, "tensordock")
    if silent:
        w.wrap("tensordock", lambda inner: cast("Provider", Silent(inner)))
    w.wrap("tensordock", lambda inner: cast("Provider", front(inner)))
    cast("Any", w.ctx.providers["tensordock"]).retried = True
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    called_at = w.clock.now()
    w.clock.advance(WAIT_S)
    assert await metering.accrue_due(w.ctx) > 10
    await termination.terminate_due(w.ctx)
    for _ in range(4):
        await later(w, 40, "tensordock")
    row = await only(w)
    assert (row.state, row.ended_at, row.terminate_acked_at) == (InstanceState.GONE, called_at, called_at)
    return row


async def unsettled(w: World) -> Decimal | None:
    return (await only(w)).unsettled_usd


async def file_usd(w: World) -> Decimal:
    """What the FOCUS file of the month adds up to."""
    month = begin(RollupTier.MONTH, w.clock.now())
    parts = [part async for part in focus_csv(w.ctx, None, month, after(RollupTier.MONTH, month))]
    return sum((Decimal(one["BilledCost"]) for one in csv.DictReader(io.StringIO("".join(parts)))), Decimal(0))


@pytest.mark.both_databases
@pytest.mark.slow
async def test_the_likely_end_is_booked_and_the_latest_one_is_held(bare: World) -> None:
    w = bare
    w.tune(budgets={"global": {"daily": Decimal(90), "monthly": Decimal(900)}, "label:x": {"monthly": Decimal(1)}})
    row = await undated(w, LostReply, silent=True)
    # The proof is the latest end, however early or late the call was.
    assert row.latest_end_at is not None
    assert row.ended_at is not None
    assert w.clock.now() - row.latest_end_at < timedelta(minutes=1)
    held_usd = row.price_usd_h * Decimal((row.latest_end_at - row.ended_at) / HOUR)
    assert row.unsettled_usd is not None
    assert abs(row.unsettled_usd - held_usd) < Decimal("0.01")
    # Nothing is booked behind the likely end, and no day lost money that it had not booked.
    assert abs(await off(w)) <= w.bill() / 100
    today = begin(RollupTier.DAY, w.clock.now())
    assert row.ended_at < today < row.latest_end_at
    async with w.ctx.db.read() as tx:
        assert await spent(tx, EVERYBODY, today) == 0
        assert await spent(tx, EVERYBODY, today - timedelta(days=1)) == await accrued_of_session(tx, row.session_id)
    assert not [one for one in await w.violations() if "bill" not in one]
    # Every period in which a part of that time lies counts it, and so does the file.
    lines = {(one.key, one.period): one for one in await enforcement.overview(w.ctx)}
    open_usd = [lines["global", period].open_usd for period in (Period.DAILY, Period.MONTHLY)]
    assert open_usd == [row.unsettled_usd, row.unsettled_usd]
    assert lines["label:x", Period.MONTHLY].open_usd == 0
    async with w.ctx.db.read() as tx:
        booked_usd = await accrued_of_session(tx, row.session_id)
    assert await file_usd(w) == booked_usd + row.unsettled_usd
    w.clock.advance(86_400)
    (daily,) = [one for one in await enforcement.overview(w.ctx) if (one.key, one.period) == ("global", Period.DAILY)]
    assert daily.open_usd == 0
    # Without a bill the likely end stands after 30 days.
    w.clock.advance(27 * 86_400)
    await true_up.reconcile_due(w.ctx)
    assert await unsettled(w) == row.unsettled_usd
    w.clock.advance(3 * 86_400)
    await true_up.reconcile_due(w.ctx)
    assert await unsettled(w) is None


@pytest.mark.slow
async def test_a_bill_settles_it_once_it_is_whole_up_to_the_latest_end(bare: World) -> None:
    """The first call never reached the cloud, which billed on until the second one."""
    w = bare
    row = await undated(w, LateOrder)
    assert -await off(w) > w.bill() / 2
    w.clock.advance((SETTLED + timedelta(hours=2)).total_seconds())
    await true_up.reconcile_due(w.ctx)
    assert abs(await off(w)) <= w.bill() / 100
    assert await unsettled(w) is None
    assert await bill_confirmation.unconfirmed(w.ctx) == []
    async with w.ctx.db.write() as tx:  # A bill that changes nothing settles it, too.
        await tx.execute(update(Instance).values(unsettled_usd=Decimal(1)))
    before = len((await w.books()).entries)
    assert await true_up.reconcile_due(w.ctx) == 0
    assert await unsettled(w) is None
    assert len((await w.books()).entries) == before
    assert row.unsettled_usd is not None


async def test_a_bill_that_may_grow_settles_nothing(bare: World) -> None:
    """Its lines end with the likely end, and the latest one was two days later."""
    w = bare
    cloud = begun(w)
    await pass_days(w, 12)
    row = await ended(w, cloud, Decimal(288))
    now = w.clock.now()
    async with w.ctx.db.write() as tx:
        values = {"latest_end_at": now + timedelta(days=2), "unsettled_usd": Decimal(48)}
        await tx.execute(update(Instance).where(Instance.id == row.id).values(**values))
    await pass_days(w, 3)
    assert await unsettled(w) == 48
    await pass_days(w, 2)
    assert await unsettled(w) is None


async def test_a_bill_above_the_approved_rate_settles_it_once_a_person_confirms_it(bare: World) -> None:
    w = bare
    cloud = begun(w)
    await pass_days(w, 12)
    cloud.factor = 5
    row = await ended(w, cloud, Decimal(288))
    async with w.ctx.db.write() as tx:
        values = {"latest_end_at": w.clock.now(), "unsettled_usd": Decimal(48)}
        await tx.execute(update(Instance).where(Instance.id == row.id).values(**values))
    await pass_days(w, 6)
    assert await unsettled(w) == 48
    reply = await bill_confirmation.confirm(w.ctx, row.id, Decimal(1440), BOB, "the invoice says so")
    assert reply.code == "bill_confirmed"
    assert await unsettled(w) is None


@pytest.mark.parametrize(("paused_h", "usd"), [(None, "3.0"), (0.5, "0.3"), (1.5, "0.75"), (9.0, "3.0")])
async def test_a_component_that_was_paused_meanwhile_costs_nothing_from_then_on(
    bare: World, paused_h: float | None, usd: str
) -> None:
    async with bare.ctx.db.write() as tx:
        row = await rows.instance(
            tx, InstanceState.TERMINATING, sent_at=START, billing_from=START, price_usd_h=Decimal(1),
            storage_usd_h=Decimal("0.1"), billing_until=None if paused_h is None else START + paused_h * HOUR,
        )  # fmt: skip
        found = last_use.unsettled_usd(bare.ctx, row, START + HOUR, START + 4 * HOUR)
        assert found == Decimal(usd)
        assert last_use.unsettled_usd(bare.ctx, row, START + HOUR, START + HOUR) is None
        disk = last_use.unsettled_usd(bare.ctx, row, START + HOUR, START + 4 * HOUR, Decimal("0.2"))
        assert disk == Decimal(usd) + Decimal("0.3")


@pytest.mark.both_databases
async def test_what_is_open_is_not_spent_by_the_next_attempt(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.QUEUED)
        over: dict[str, Any] = {"ended_at": START, "latest_end_at": START + HOUR, "unsettled_usd": Decimal("0.5")}
        await rows.instance(tx, InstanceState.GONE, of=session, **over)
        request = await tx.get_one(Request, session.request_id)
        request.quote_version = 2
        assert await spent_before(tx, request) == Decimal("0.5")


async def test_a_replacement_does_not_get_what_is_open(w: World) -> None:
    await w.running(candidates=("vast",))
    w.clock.advance(600)
    w.clouds["vast"].disturb(str((await only(w)).ref), "vanish")
    await w.run(160, 20)
    books = await w.books()
    first, new = books.instances[0], books.grants[-1]
    assert (len(books.instances), first.state) == (2, InstanceState.GONE)
    assert first.unsettled_usd is not None
    async with w.ctx.db.read() as tx:
        used_usd = (await booked(tx, first)).usd
    assert new.total_cap_usd == books.grants[0].total_cap_usd - used_usd - first.unsettled_usd
    # In all it may cost what was approved, and not what is left of that.
    assert (await w.session(first.session_id)).cap_usd == books.approvals[0].total_cap_usd


@pytest.mark.parametrize("acked", [False, True])
async def test_a_write_off_ends_now_unless_the_cloud_had_accepted_the_end(w: World, acked: bool) -> None:
    """A call without a reply dates nothing, neither the likely end nor the latest one."""
    request_id = await in_use(w)
    called_at = w.clock.now()
    await w.end(request_id)
    async with w.ctx.db.write() as tx:
        values = {"terminate_called_at": called_at, "terminate_acked_at": called_at if acked else None}
        await tx.execute(update(Instance).values(**values))
    row, other = await only(w), w.ctx.providers["vast"]
    w.wrap("vast", lambda inner: cast("Provider", Empty(inner)))
    await other.terminate(str(row.ref))
    w.clock.advance(2 * 3600)
    assert (await write_off(w.ctx, [row.id], BOB, "The account is closed.")).ok
    row = await only(w)
    end_at = called_at if acked else w.clock.now()
    assert (row.state, row.ended_at, row.latest_end_at) == (InstanceState.GONE, end_at, end_at)
    assert row.unsettled_usd is None


async def test_people_read_the_likely_end_with_its_range(bare: World) -> None:
    w = bare
    row = await undated(w, LostReply)
    end = true_up.unsure_end(w.ctx, row)
    assert end is not None
    assert (end.likely, end.latest) == (row.ended_at, row.latest_end_at)
    assert end.earliest <= end.likely < end.latest
    view = await w.session(row.session_id)
    shown = session_out(w.ctx, view, w.clock.now(), Sight.OWN)
    assert (shown.likely_end_at, shown.earliest_end_at, shown.latest_end_at) == (end.likely, end.earliest, end.latest)
    assert shown.unsettled_usd == row.unsettled_usd
    assert row.unsettled_usd is not None
    more = f"It may cost up to {usd(row.unsettled_usd)} more."
    report = str(session_details(shown))
    assert f"Its machine most likely ended {moment(end.likely)}" in report
    assert more in report
    card = ended_message(view, Decimal(1), end=end).text
    assert f"Its machine most likely ended {when(end.likely)}, between {when(end.earliest)} and" in card
    assert more in card
    # An end that its cloud accepted is known to seconds.
    row.latest_end_at, row.worked_at, row.trouble_at = row.ended_at, None, None
    assert true_up.unsure_end(w.ctx, row) is None
