"""What is taken back of an instance that had ended before: hours, parts of hours, rate steps and disks."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.billing.take_back import BookedPiece, EndedSpan, hours_are_booked, surplus
from providers.capabilities import BillingRule
from tests.support.clock import START

HOUR = timedelta(hours=1)
BY_SECOND = BillingRule()


def after(hours: float) -> datetime:
    return START + hours * HOUR


def gpu(suffix: str, usd: str, at: float) -> BookedPiece:
    return BookedPiece(f"ins_1/gpu/{suffix}", "gpu", Decimal(usd), after(at))


def taken(pieces: list[BookedPiece], end: float, rule: BillingRule = BY_SECOND) -> Decimal:
    found = surplus(pieces, {name: EndedSpan(START, after(end), rule) for name in ("gpu", "storage")})
    return sum((one.amount_usd for one in found.values()), Decimal(0))


@pytest.mark.parametrize(
    ("pieces", "end", "usd"),
    [
        # Whole hours behind the end, and the rest of the one in which it lies.
        ([gpu("h1", "4", 2), gpu("h2", "4", 3)], 1.25, "7"),
        ([gpu("h1", "4", 2)], 2, "0"),
        # A stop cut the hour before the end: its part stays, and the rest of the hour is shared out.
        ([gpu("stop-900", "1", 0.25), gpu("h0", "3", 1)], 0.5, "2"),
        # A stop that a listing showed behind the end.
        ([gpu("stop-3000", "5", 5 / 6)], 0.5, "2"),
        ([gpu("stop-900", "1", 0.25), gpu("stop-2700", "2", 0.75)], 0.5, "1"),
        # The hour is booked at the new rate, and the step corrects what ran before it.
        ([gpu("rate-20260302T090000000000", "-1", 0.5), gpu("h0", "4", 1)], 0.25, "2.5"),
        ([gpu("rate-20260302T090000000000", "-1", 1.5), gpu("h1", "4", 2)], 0.5, "3"),
        # A stop at once used no time.
        ([gpu("stop-0", "1", 0)], 0, "0"),
        # Nothing else is the use of an instance.
        ([gpu("true-up/1", "9", 3)], 1, "0"),
    ],
)
def test_each_piece_loses_what_lies_behind_the_end(pieces: list[BookedPiece], end: float, usd: str) -> None:
    assert taken(pieces, end) == Decimal(usd)


def test_a_step_that_has_started_stays_whole() -> None:
    hourly = BillingRule(quantum_s=3600)
    assert taken([gpu("h1", "4", 2), gpu("h2", "4", 3)], 1.25, hourly) == 4
    assert taken([gpu("h0", "4", 1)], 0, BillingRule(minimum_s=1800)) == 2


def test_a_retained_disk_counts_from_its_own_beginning() -> None:
    since = after(0.5)
    key = f"ins_1/disk/{int(since.timestamp())}"
    pieces = [
        BookedPiece(f"{key}/h0", "storage", Decimal(2), since + HOUR),
        BookedPiece(f"{key}/final", "storage", Decimal(1), since + 1.5 * HOUR),
    ]
    assert taken(pieces, 1) == 2


def test_days_stay_apart() -> None:
    midnight = datetime(START.year, START.month, START.day, tzinfo=START.tzinfo) + timedelta(days=1)
    start = midnight - 2 * HOUR
    pieces = [BookedPiece(f"ins_1/gpu/h{n}", "gpu", Decimal(4), start + (n + 1) * HOUR) for n in range(4)]
    found = surplus(pieces, {"gpu": EndedSpan(start, start + HOUR / 2, BY_SECOND)})
    first, second = midnight.date() - timedelta(days=1), midnight.date()
    amounts: dict[date, Decimal] = {day: one.amount_usd for (_, day), one in found.items()}
    assert amounts == {first: Decimal(2), second: Decimal(12)}
    assert [one.at for one in found.values()] == [start + HOUR, start + 4 * HOUR]


def test_no_last_piece_is_due_where_the_hour_is_booked() -> None:
    booked = [gpu("h1", "4", 2), BookedPiece("ins_1/disk/1/h7", "storage", Decimal(1), after(8))]
    assert hours_are_booked(booked, "gpu", EndedSpan(START, after(1.25), BY_SECOND))
    assert not hours_are_booked(booked, "gpu", EndedSpan(START, after(2), BY_SECOND))
    assert not hours_are_booked(booked, "storage", EndedSpan(START, after(1), BY_SECOND))
