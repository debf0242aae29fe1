"""Compute the digest once when it is due, and put it into the outbox under its day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from bot.rules.budgets.budget import said
from bot.rules.reports.digest import (
    BASE_DAYS,
    WEEKDAYS,
    Window,
    anomalies,
    day_before,
    days,
    due_day,
    forecast,
    saved,
    week_before,
)
from bot.rules.reports.reservations import first_working_day
from bot.rules.values.phrases import usd
from bot.services.billing.costs import by_person, named, shortened
from bot.services.billing.true_up import ranges, reports_no_charges
from bot.services.budgets import enforcement
from bot.services.reports import reservation_advice
from bot.services.reports.digest_types import DigestDocument, FoundOrphan, RunningSession, Shares
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from bot.services.sessions.session_state import grace_line
from ledger.core import Tx, announce_once, notifications_of
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import short_id
from ledger.kernel.states import NotificationKind, SessionState
from ledger.queries.calendar_costs import by_borders, costs_within
from ledger.queries.digest import (
    Over,
    SessionAndInstance,
    any_before,
    gone_at,
    mark_of,
    open_sessions,
    orphans_found,
    over,
    said_of,
    set_mark,
    stops,
)
from ledger.queries.retained_disks import open_disks
from ledger.queries.runs.graces import open_graces

#: The channel of the digest unless the policy names another one.
CHANNEL = "channel:approvals"
#: Names of one list; the rest is a number.
LISTED = 10
GROUPS = ("cloud", "owner", "gpu")
#: The month in which it was judged last whether a reservation would be cheaper.
RESERVATIONS_MARK = "reservations"
_NOTHING = Decimal(0)


async def digest_due(ctx: Context) -> int:
    """Announce the daily and the weekly digest when they are due and not announced yet. Return how many were.

    None while the clock is in doubt: the digest of a day that has not come would say nothing, and take the place of the
    true one when that day comes.
    """
    if clock_problem(ctx.clock):
        return 0
    policy, now = ctx.policy, ctx.clock.now()
    day = due_day(now, policy.digest_at, policy.digest_timezone)
    if day is None:
        return 0
    if policy.digest_weekly:
        on = day - timedelta(days=(day.weekday() - WEEKDAYS.index(policy.digest_weekly)) % 7)
        done = await _announce(ctx, f"weekly/{on}", week_before(on, policy.digest_timezone), now, weekly=True)
        if done or on == day or await _was_announced(ctx, f"weekly/{on}", day):
            return done  # The week's digest replaces that of its day.
    return await _announce(ctx, f"daily/{day}", day_before(day, policy.digest_timezone), now, weekly=False)


async def _was_announced(ctx: Context, subject: str, day: date) -> bool:
    """Whether a digest that came late was announced on this day."""
    zone = ZoneInfo(ctx.policy.digest_timezone)
    async with ctx.db.read() as tx:
        found = await notifications_of(tx, NotificationKind.DIGEST, subject)
    return any(one.created_at.astimezone(zone).date() >= day for one in found)


async def _announce(ctx: Context, subject: str, window: Window, now: datetime, *, weekly: bool) -> int:
    kind = NotificationKind.DIGEST
    async with ctx.db.read() as tx:
        if await notifications_of(tx, kind, subject) or not await any_before(tx, window.until):
            return 0
        document = await digest(ctx, tx, window, weekly=weekly)
    month = await _month_to_judge(ctx, window.last + timedelta(days=1))
    if month:
        document = document.model_copy(update={"reservations": await reservation_advice.advice(ctx.db, window, now)})
    destination = ctx.policy.digest_channel or CHANNEL
    async with ctx.db.write() as tx:
        body = document.model_dump(mode="json")
        new = await announce_once(tx, now, kind, subject, destination=destination, body=body)
        if new and month:
            await set_mark(tx, RESERVATIONS_MARK, month, now)
    ctx.hints.outbox.set()
    return int(new)


async def _month_to_judge(ctx: Context, day: date) -> str:
    """Return the month whose first working day has come and whose reservations were not judged yet; "" for none.

    Where nothing ran on that day, a digest of the following week judges them.
    """
    month, first = f"{day:%Y-%m}", first_working_day(day)
    if not first <= day < first + timedelta(days=7):
        return ""
    async with ctx.db.read() as tx:
        return "" if await mark_of(tx, RESERVATIONS_MARK) == month else month


async def digest(ctx: Context, tx: Tx, window: Window, *, weekly: bool) -> DigestDocument:
    """Compute the figures of a window, in a fixed number of queries."""
    zone = ctx.policy.digest_timezone
    by_day = await _by_day(tx, window, zone)
    known = _known(by_day)
    base_since = window.since - timedelta(days=known)
    windows = [(window.since, window.until), (window.month_since, window.until), (base_since, window.since)]
    groups, month, base = await costs_within(tx, windows, GROUPS)
    length = (window.last - window.first).days + 1
    recent = [amount for _, amount in by_day]
    month_usd = _total(month["cloud"])
    live, ended = await open_sessions(tx), await over(tx, window.since, window.until)
    stopped = await stops(tx, [*(one.id for one in live), *(one.id for one in ended)], window.until)
    found_orphans = await orphans_found(tx, window.since, window.until)
    disks = await open_disks(tx)
    # A session with a retained disk is listed among the disks: its instance neither runs nor costs anything.
    kept = {one.session_id for one in disks}
    at_work = [one for one in live if one.id not in kept or one.state != SessionState.TERMINATING]
    return DigestDocument(
        weekly=weekly,
        first=window.first,
        last=window.last,
        zone=zone,
        spent_usd=_total(groups["cloud"]),
        before_usd=sum(recent[-2 * length : -length], _NOTHING),
        month_usd=month_usd,
        forecast_usd=forecast(month_usd, recent[-known - 1 :], window),  # Days before the first cost say nothing.
        budgets=tuple(f"{line.key}: {said(line)}" for line in await enforcement.named(ctx, tx, ctx.clock.now())),
        groups=_short(groups | {"owner": by_person(ctx.policy, groups["owner"])}),
        days=tuple(by_day[-BASE_DAYS:]),
        running=tuple(RunningSession.model_validate(one) for one in at_work[:LISTED]),
        running_in_all=len(at_work),
        running_usd_h=sum((_rate(ctx, one) for one in at_work if one.cloud), _NOTHING),
        ended_by=dict(Counter(one.code for one in ended).most_common()),
        saved_usd=_saved(ctx, live, ended, stopped, window),
        orphans=tuple(map(FoundOrphan.model_validate, found_orphans[:LISTED])),
        orphans_in_all=len(found_orphans),
        disks_in_all=len(disks),
        graces=await _graces(ctx, tx),
        unreconciled=await _unreconciled(ctx, tx, window),
        broken_glass=tuple((await said_of(tx, EventKind.REQUEST_BREAK_GLASS, window.since, window.until))[:LISTED]),
        anomalies=() if weekly else _anomalies(groups, base, known),
    )


def _total(rows: Sequence[tuple[str, Decimal]]) -> Decimal:
    return sum((amount for _, amount in rows), _NOTHING)


def _short(groups: Mapping[str, Sequence[tuple[str, Decimal]]]) -> dict[str, Shares]:
    return {by: tuple(shortened(named(by, groups[by]))) for by in GROUPS}


async def _by_day(tx: Tx, window: Window, zone: str) -> list[tuple[date, Decimal]]:
    """Return the dollars of each day up to the last one: of the base and of a day, or of two weeks."""
    every = days(window.last - timedelta(days=BASE_DAYS), window.last, zone)
    amounts = await by_borders(tx, [every[0][1], *(until for _, _, until in every)])
    return [(day, amount) for (day, _, _), amount in zip(every, amounts, strict=True)]


def _known(by_day: Sequence[tuple[date, Decimal]]) -> int:
    """Count the days before the last one since the first that cost anything."""
    before = by_day[-BASE_DAYS - 1 : -1]
    return len(before) - next((n for n, (_, amount) in enumerate(before) if amount), len(before))


def _anomalies(
    groups: Mapping[str, Sequence[tuple[str, Decimal]]], base: Mapping[str, Sequence[tuple[str, Decimal]]], known: int
) -> tuple[str, ...]:
    """Return what cost far more than on the days before: in all, or of one name of a group.

    `known` is the number of those days.
    """
    found = anomalies("everything", {"": _total(groups["cloud"])}, {"": _total(base["cloud"])}, known)
    found = [sentence.replace("everything none", "in all") for sentence in found]
    for by in GROUPS:
        found += anomalies(by, dict(groups[by]), dict(base[by]), known)
    return tuple(found[:LISTED])


async def _unreconciled(ctx: Context, tx: Tx, window: Window) -> tuple[str, ...]:
    """Return sessions that ended at clouds that report no charges, with the least and most that each can have cost."""
    able = {name: provider.capabilities for name, provider in ctx.providers.items()}
    silent = [name for name, cloud in able.items() if reports_no_charges(cloud)]
    gone = {row.session_id: row for row in await gone_at(tx, silent, window.since, window.until)}
    between = await ranges(ctx, tx, gone)
    return tuple(
        f"{short_id(row.request_id)} at {row.cloud}: between {usd(between[one][0])} and {usd(between[one][1])}"
        for one, row in gone.items()
        if one in between
    )[:LISTED]


async def _graces(ctx: Context, tx: Tx) -> tuple[str, ...]:
    """Return the machines that are kept in grace now, with what that costs and until when."""
    now = ctx.clock.now()
    return tuple(
        f"{session.short_id} at {row.cloud}: {grace_line(grace, now)}" for grace, row, session in await open_graces(tx)
    )[:LISTED]


def _rate(ctx: Context, one: SessionAndInstance) -> Decimal:
    """Return what a session costs per hour in its state.

    A stopped one costs its disk, unless its cloud bills the GPU while stopped.
    """
    provider = ctx.providers.get(one.cloud)
    bills_on = provider is None or provider.capabilities.billing.gpu_while_stopped
    return one.price_usd_h if one.state != "stopped" or bills_on else one.storage_usd_h


def _saved(
    ctx: Context,
    live: Sequence[SessionAndInstance],
    ended: Sequence[Over],
    stopped: Mapping[str, Sequence[tuple[datetime, bool]]],
    window: Window,
) -> Decimal:
    """Return the dollars not spent in the window: sessions that ended early, and instances that were stopped."""
    total = _NOTHING
    for one in ended:
        if one.deadline is not None and one.deadline > one.ended_at:
            total += saved(one.price_usd_h, [(one.ended_at, True)], one.ended_at, one.deadline)
        total += saved(one.price_usd_h, stopped.get(one.id, ()), window.since, min(window.until, one.ended_at))
    for held_one in live:
        rate = held_one.price_usd_h - _rate(ctx, held_one) if held_one.state == "stopped" else held_one.price_usd_h
        total += saved(rate, stopped.get(held_one.id, ()), window.since, window.until)
    return total
