"""True up sessions with what clouds charged, late lines too, and page about a bill that is late or too high."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from bot.rules.billing.end_times import KnownEnd, known_end
from bot.rules.billing.metering import amount, seconds, so_far
from bot.rules.billing.true_up import (
    TOTALS,
    BillLineItem,
    between,
    corrections,
    counted,
    is_above,
    is_late,
    is_settled,
    is_whole,
    most,
)
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import usd
from bot.services.notifications.paging import OPERATORS
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import Tx, announce_once, book, record
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import short_id
from ledger.kernel.states import InstanceState, NotificationKind
from ledger.models import Instance
from ledger.queries.budgets.unsettled import settle_instances
from ledger.queries.cloud_bills import (
    Account,
    BillSubject,
    account_of,
    accounts_and_overdue,
    corrected,
    earliest,
    keep_lines,
    used_by,
)
from providers.capabilities import BillingStart, Capabilities
from providers.contract import Provider
from providers.errors import ProviderError

#: How far back each pass reads bills again: late lines come within days.
READ_BACK = timedelta(days=8)
#: How far back each pass compares ended instances.
COMPARED = timedelta(days=30)
#: Dollars: the least and the most.
Range = tuple[Decimal, Decimal]

log = logging.getLogger(__name__)


async def reconcile_due(ctx: Context) -> int:
    """Read the bill of every cloud that has one, and correct the ledger by it. Return how many entries were booked."""
    if clock_problem(ctx.clock):
        return 0  # Which days a bill covers, and whether it is whole, follows from the time.
    now = ctx.clock.now()
    billing = {(one.name, one.account): one for one in ctx.providers.values() if one.capabilities.charges}
    totals = [key for key, one in billing.items() if one.capabilities.bill_granularity in TOTALS]
    began: dict[Account, datetime] = {}
    if totals:
        async with ctx.db.read() as tx:
            began = await earliest(tx, totals, now - COMPARED)
    rows, read = [], []
    for key, provider in billing.items():
        # A total may be cut to the time that is asked about, so it is asked for from the beginning on.
        since = min(began.get(key, now), now - READ_BACK)
        try:
            rows += await _lines_of(provider, since, now)
        except ProviderError as error:
            log.warning("the bill of %s could not be read: %s", provider.name, error.message)
        else:
            read.append(key)
    if rows:
        async with ctx.db.write() as tx:
            await keep_lines(tx, rows)
    async with ctx.db.read() as tx:
        found, overdue = await accounts_and_overdue(tx, read, now - COMPARED)
    if overdue:
        async with ctx.db.write() as tx:
            await settle_instances(tx, overdue)  # No bill came, so their likely ends stand.
    return await _true_up(ctx, [(one, billing[one.cloud, one.account].capabilities) for one in found], now)


async def _lines_of(provider: Provider, since: datetime, now: datetime) -> list[dict[str, Any]]:
    """Read the lines of one bill, as they are stored. Some belong to instances that are not ours, and are not used."""
    return [
        {
            "cloud": provider.name,
            "account": provider.account,
            "line_id": line.line_id[:160],
            "ref": line.ref[:64],
            "component": line.component,
            "amount_usd": line.amount_usd,
            "begins": line.start,
            "ends": line.end,
            "read_at": now,
        }
        for line in await provider.charges(since, now)
    ]


async def _true_up(ctx: Context, found: Sequence[tuple[BillSubject, Capabilities]], now: datetime) -> int:
    """Correct these instances by their bills, and page about bills that are late or too high."""
    done, pages = 0, []
    for account, able in found:
        one = compare(account, able, now, ctx.timing.sweep_s)
        if (one.differences or one.settles) and not one.above:
            async with ctx.db.write() as tx:
                done += await _correct(tx, account, able, now, ctx.timing.sweep_s)
        costs = sum(account.booked_usd.values(), Decimal(0)) > 0
        late = costs and is_late(account.ended_at, now, whole=one.whole)
        if one.above and (one.whole or late):
            pages.append((f"{account.id}/bill/{one.billed_usd:.2f}", _question(account, one)))
        elif late:
            pages.append((f"{account.id}/uncleared", _overdue(account)))
    if pages:
        async with ctx.db.write() as tx:
            for subject, text in pages:
                kind = NotificationKind.OPERATOR_PAGE
                await announce_once(tx, now, kind, subject, destination=OPERATORS, body={"text": text})
        ctx.hints.outbox.set()
    return done


@dataclass(frozen=True, slots=True)
class BillComparison:
    """Hold what the bill of one instance says, in dollars, and what it would change.

    `above`: it says more than the instance can have cost, `most_usd`, so that only a person corrects the ledger by it.
    `settles`: it covers the time until the latest end that is known, and something of that is open in the ledger.
    """

    billed_usd: Decimal
    booked_usd: Decimal
    most_usd: Decimal
    differences: dict[str, Decimal]
    whole: bool
    above: bool
    settles: bool


def compare(account: BillSubject, able: Capabilities, now: datetime, sweep_s: float) -> BillComparison:
    """Compare one instance that is gone with its bill. `sweep_s` are the seconds between two reconcile passes."""
    lines, clear = counted(_lines(account, able))
    end = known_end(account.row, account.ended_at, sweep_s) if account.row is not None else None
    whole = clear and is_whole(lines, account.billing_from, account.ended_at, now, able.bill_granularity, end)
    differences = corrections(account.booked_usd, lines, whole=whole) if lines else {}
    existed_from = account.existed_from
    if able.charges_derived and account.session_id is None:
        # An orphan was seen at some time after it began, and the cloud's log says when that was.
        existed_from = min([existed_from, *(line.begins for line in lines)])
    existed_until = max(end.latest if end is not None else account.ended_at, account.existed_until)
    most_usd = most(existed_from, existed_until, account.most_usd_h, able.billing)
    is_open = account.row is not None and account.row.unsettled_usd is not None
    return BillComparison(
        sum((line.amount_usd for line in lines), Decimal(0)),
        sum(account.booked_usd.values(), Decimal(0)),
        most_usd,
        differences,
        whole,
        is_above(account.booked_usd, differences, most_usd),
        is_open and whole and is_settled(lines, existed_until, now, able.bill_granularity),
    )


def _lines(account: BillSubject, able: Capabilities) -> list[BillLineItem]:
    """Return the bill of one instance.

    Where a cloud gives only times, they cost the rate at which the instance was rented: the price of its type may have
    changed since.
    """
    rate, derived = account.gpu_usd_h, able.charges_derived
    return [
        BillLineItem(
            one.component,
            amount(seconds(one.begins, one.ends), rate, able.billing) if derived else one.amount_usd,
            one.begins,
            one.ends,
        )
        for one in account.lines
    ]


async def _correct(tx: Tx, found: BillSubject, able: Capabilities, now: datetime, sweep_s: float) -> int:
    """Correct one instance after reading its row again under the lock, so that two replicas correct it once."""
    one = await account_of(tx, found)
    if one is None:
        return 0
    fresh = compare(one, able, now, sweep_s)
    return 0 if fresh.above else await book_differences(tx, one, fresh, now)


async def book_differences(
    tx: Tx, one: BillSubject, bill: BillComparison, now: datetime, actor: Actor = SYSTEM, reason: str = ""
) -> int:
    """Book the differences between the bill and the ledger, and settle the end. The caller holds its lock."""
    if bill.settles:
        await settle_instances(tx, [one.id])
    number, done = await corrected(tx, one) if bill.differences else 0, 0
    for component, difference in bill.differences.items():
        number += 1
        mine, theirs = one.holder, f"payable:{one.cloud}:{one.account}"
        done += await book(
            tx,
            key=f"{one.id}/true-up/{number}",
            kind=EntryKind.LOSS if one.session_id is None else EntryKind.TRUE_UP,
            debit=mine if difference > 0 else theirs,
            credit=theirs if difference > 0 else mine,
            amount_usd=abs(difference),
            at=now,
            session_id=one.session_id,
            instance_id=one.instance_id,
            component=component,
            note="by the cloud's own bill",
        )
        kind = EventKind.ORPHAN_TRUED_UP if one.session_id is None else EventKind.SESSION_TRUED_UP
        sentence = f"{one.cloud} charged {usd(abs(difference))} {'more' if difference > 0 else 'less'} for {component}."
        record(tx, now, actor, one.subject, kind, reason=f"{sentence} {reason}".strip())
    return done


def reports_no_charges(able: Capabilities) -> bool:
    """Whether a paid cloud never reports what it charged."""
    return not able.free and (not able.charges or able.charges_derived)


def bounds(ctx: Context, row: Instance) -> Range | None:
    """Return the least and most that an instance that ended can have cost.

    None where its cloud says what it charged, or charges nothing. The difference is *unreconciled*. No bill names an
    instance that nobody saw, so a launch that was given up has a range at every cloud that charges.
    """
    provider = ctx.providers.get(row.cloud)
    if provider is None or row.ended_at is None or row.state is InstanceState.REJECTED:
        return None
    rule, derived = provider.capabilities.billing, provider.capabilities.charges_derived
    if row.state is InstanceState.TOMBSTONE:
        most_usd = so_far(row.sent_at, row.ended_at, row.price_usd_h, rule)
        return None if provider.capabilities.free else (Decimal(0), most_usd)
    if not reports_no_charges(provider.capabilities):
        return None
    # Times from a log say when it was made and ended, and not from when on it was billed.
    from_create = rule.starts is BillingStart.CREATE and not derived
    ran_at = row.sent_at if from_create else row.reachable_at or (None if derived else row.billing_from)
    gpu_usd_h = max(row.price_usd_h - row.storage_usd_h, Decimal(0))
    end = known_end(row, row.ended_at, ctx.timing.sweep_s)
    least, _ = between(row.sent_at, ran_at, end.earliest, row.ended_at, gpu_usd_h, rule)
    _, greatest = between(row.sent_at, ran_at, end.earliest, end.latest, gpu_usd_h, rule)
    disk, disk_at_most = (so_far(row.sent_at, until, row.storage_usd_h, rule) for until in (row.ended_at, end.latest))
    return least + disk, greatest + disk_at_most


def unsure_end(ctx: Context, row: Instance | None) -> KnownEnd | None:
    """Return when an instance ended, with its range; None where it runs, or where the range is short."""
    if row is None or row.ended_at is None or row.state is not InstanceState.GONE:
        return None
    end = known_end(row, row.ended_at, ctx.timing.sweep_s)
    return end if end.is_range else None


async def ranges(ctx: Context, tx: Tx, session_ids: Collection[str]) -> dict[str, Range]:
    """Return the least and most that each ended session with an unknown cost can have cost.

    The known cost of its instances at clouds that say what they charged is in both.
    """
    rows, used = await used_by(tx, session_ids)
    found: dict[str, Range] = {}
    for row in rows:
        between = bounds(ctx, row)
        if between is not None:
            low, high = found.get(row.session_id, (sum(used[row.session_id].values(), Decimal(0)),) * 2)
            known = used[row.session_id].get(row.id, Decimal(0))
            found[row.session_id] = low + between[0] - known, high + between[1] - known
    return {session_id: (low, high) for session_id, (low, high) in found.items() if high > 0}


async def range_of(ctx: Context, session_id: str) -> Range | None:
    """Return the cost range of one session, in its own read transaction."""
    async with ctx.db.read() as tx:
        return (await ranges(ctx, tx, (session_id,))).get(session_id)


def name_of(account: BillSubject) -> str:
    """Return what people call the subject of a bill."""
    return f"session {short_id(account.request_id)}" if account.request_id else f"orphan {account.id}"


def _overdue(account: BillSubject) -> str:
    what = "is incomplete" if account.lines else "is missing"
    booked = usd(sum(account.booked_usd.values(), Decimal(0)))
    return (
        f"The bill of {account.cloud} for {name_of(account)} (instance {account.ref}) {what} four days after its end. "
        f"The ledger has {booked}. Compare it by hand."
    )


def _question(account: BillSubject, one: BillComparison) -> str:
    confirm = cli_command(f"bills confirm {account.id} --amount {one.billed_usd:.2f} --reason WHY")
    return (
        f"{account.cloud} bills {usd(one.billed_usd)} for {name_of(account)} (instance {account.ref}). Its hours at "
        f"the approved rate cost at most {usd(one.most_usd)}, so the ledger stays at {usd(one.booked_usd)}. Check the "
        f"bill at the cloud. If it is right: {confirm}"
    )
