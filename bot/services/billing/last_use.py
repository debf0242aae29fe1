"""Book what an instance that is gone has used until its likely end, and nothing behind that."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from bot.rules.billing.end_times import is_dated
from bot.rules.billing.metering import completed, so_far
from bot.rules.billing.take_back import BookedPiece, EndedSpan, hours_are_booked, surplus
from bot.services.billing.metering import accruals, components, entry_key, gpu_billed_from, rule_of
from bot.services.runtime.context import Context
from ledger.core import NewEntry, Tx, book_all
from ledger.kernel.booked_component import BookedComponent
from ledger.kernel.entry_kind import EntryKind
from ledger.models import Instance
from ledger.queries.budgets.unsettled import used_behind
from providers.contract import InstanceStatus

NOTE = "it had ended before"


async def accrue_rest(ctx: Context, tx: Tx, row: Instance, ended_at: datetime, now: datetime) -> int:
    """Book what an instance that is gone has used until its likely end. Return how many entries are new.

    What was booked beyond that is given back, by component and on the day for which it was booked: no later day or
    month lowers what it has spent by that.
    """
    rest = accruals(ctx, row, ended_at, final=True)
    if not _may_be_booked_behind(row, ended_at, now):
        return await book_all(tx, rest)
    booked = [BookedPiece(*one) for one in await used_behind(tx, row.id, ended_at)]
    spans = _spans(ctx, row, ended_at)
    whole = {name for name, span in spans.items() if hours_are_booked(booked, name, span)}
    rest = [one for one in rest if not (one.component in whole and one.key.endswith("/final"))]
    return await book_all(tx, [*rest, *(_given_back(row, one) for one in surplus(booked, spans).values())])


def unsettled_usd(
    ctx: Context, row: Instance, ended_at: datetime, latest_at: datetime, disk_usd_h: Decimal = Decimal(0)
) -> Decimal | None:
    """Return what an instance may have cost beyond its likely end, until the latest one; None for nothing.

    A component that was paused in between costs nothing from then on. `disk_usd_h` is the rate of its retained disk.
    """
    if latest_at <= ended_at:
        return None
    least, most = (_cost(ctx, row, at, disk_usd_h) for at in (ended_at, latest_at))
    return sum((max(most[name] - least[name], Decimal(0)) for name in most), Decimal(0)) or None


def _cost(ctx: Context, row: Instance, until: datetime, disk_usd_h: Decimal) -> dict[BookedComponent, Decimal]:
    """Return what each component costs until then. A retained disk costs its own rate."""
    rates = {BookedComponent.STORAGE: disk_usd_h}
    return {
        name: so_far(start, min(until, paused_at or until), max(usd_h, rates.get(name, usd_h)), rule_of(ctx, row))
        for name, start, paused_at, usd_h, _ in components(row, gpu_billed_from(ctx, row, until))
    }


def _spans(ctx: Context, row: Instance, ended_at: datetime) -> dict[str, EndedSpan]:
    rule = rule_of(ctx, row)
    return {
        component: EndedSpan(start, min(ended_at, paused_at or ended_at), rule)
        for component, start, paused_at, *_ in components(row, gpu_billed_from(ctx, row, ended_at))
        if start is not None
    }


def _may_be_booked_behind(row: Instance, ended_at: datetime, now: datetime) -> bool:
    """Whether anything can be booked behind this end: not where a reply dates it, and nothing was cut since then."""
    is_paused = row.billing_until is not None or row.storage_until is not None or row.status == InstanceStatus.STOPPED
    if ended_at != row.terminate_acked_at or not is_dated(row) or is_paused:
        return True
    starts = [start for _, start, *_ in components(row, row.billing_from) if start is not None]
    return any(completed(start, now) > completed(start, ended_at) for start in starts)


def _given_back(row: Instance, one: BookedPiece) -> NewEntry:
    mine, theirs = f"session:{row.session_id}", f"payable:{row.cloud}:{row.account}"
    return NewEntry(
        key=entry_key(row, BookedComponent(one.component), f"behind-{one.at:%Y%m%d}"),
        kind=EntryKind.TRUE_UP,
        debit=theirs if one.amount_usd > 0 else mine,
        credit=mine if one.amount_usd > 0 else theirs,
        amount_usd=abs(one.amount_usd),
        at=one.at,
        session_id=row.session_id,
        instance_id=row.id,
        component=one.component,
        note=NOTE,
    )
