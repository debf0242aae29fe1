"""The ledger against a bill: whole or not, later and dearer lines, and what cannot be known."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.billing.end_times import KnownEnd
from bot.rules.billing.true_up import BillLineItem, between, corrections, counted, is_above, is_late, is_whole, most
from providers.capabilities import BillGranularity, BillingRule
from tests.support.clock import START

HOUR = timedelta(hours=1)


def line(usd: str, component: str = "gpu", begins: datetime = START, hours: float = 6) -> BillLineItem:
    return BillLineItem(component, Decimal(usd), begins, begins + hours * HOUR)


@pytest.mark.parametrize(
    ("lines", "whole"),
    [
        ([], False),
        ([line("1")], True),
        ([line("1", hours=4)], False),
        ([line("1", hours=5)], True),
        ([line("1", begins=START + 2 * HOUR, hours=4)], False),
        ([line("1", hours=3), line("1", begins=START + 3 * HOUR, hours=3)], True),
    ],
)
def test_a_bill_is_whole_when_it_reaches_from_beginning_to_end(lines: list[BillLineItem], whole: bool) -> None:
    end = START + 6 * HOUR
    assert is_whole(lines, START, end, end) is whole
    assert is_whole(lines, None, end, end) is (whole or lines == [line("1", begins=START + 2 * HOUR, hours=4)])


def test_a_bill_may_end_where_an_unsure_end_begins_once_late_lines_have_come() -> None:
    unsure, lines = KnownEnd(START + 2 * HOUR, START + 8 * HOUR, START + 9 * HOUR), [line("1", hours=2)]
    whole_from = unsure.latest + timedelta(hours=48)
    assert not is_whole(lines, START, unsure.likely, whole_from - timedelta(seconds=1), end_range=unsure)
    assert is_whole(lines, START, unsure.likely, whole_from, end_range=unsure)
    assert not is_whole([line("1", hours=0.9)], START, unsure.likely, whole_from, end_range=unsure)


def test_the_total_of_a_month_that_runs_is_whole_when_the_end_is_two_days_old() -> None:
    end = START + 6 * HOUR
    total = [line("1", hours=600)]
    assert not is_whole(total, START, end, end + timedelta(hours=47))
    assert is_whole(total, START, end, end + timedelta(hours=48))


def test_a_whole_bill_is_what_the_ledger_says_afterwards() -> None:
    booked = {"gpu": Decimal("1.10"), "storage": Decimal("0.02"), "egress": Decimal("0.5")}
    lines = [line("0.60"), line("0.40"), line("0.02", "storage"), line("0.07", "bandwidth")]
    assert corrections(booked, lines, whole=True) == {
        "gpu": Decimal("-0.10"),
        "egress": Decimal("-0.5"),
        "bandwidth": Decimal("0.07"),
    }
    assert corrections({"gpu": Decimal(1)}, [line("1.0000004")], whole=True) == {}


def test_while_lines_are_missing_nothing_is_taken_back() -> None:
    assert corrections({"gpu": Decimal(2)}, [line("1")], whole=False) == {}
    assert corrections({"gpu": Decimal(1), "storage": Decimal(1)}, [line("3")], whole=False) == {"gpu": Decimal(2)}


def test_a_bill_that_does_not_come_is_late_after_four_days() -> None:
    assert not is_late(START, START + timedelta(days=3, hours=23), whole=False)
    assert is_late(START, START + timedelta(days=4), whole=False)
    assert not is_late(START, START + timedelta(days=9), whole=True)


def test_what_a_silent_cloud_can_have_charged() -> None:
    rule, rate = BillingRule(), Decimal(6)
    gone = START + 3 * HOUR
    assert between(START, START + HOUR, START + 2 * HOUR, gone, rate, rule) == (Decimal(6), Decimal(18))
    assert between(START, None, None, gone, rate, rule) == (Decimal(0), Decimal(18))
    assert between(None, START, None, gone, rate, rule) == (Decimal(18), Decimal(18))


def test_overlapping_lines_of_one_component_are_never_summed() -> None:
    def sums(*lines: BillLineItem) -> tuple[int, bool]:
        found, clear = counted(lines)
        return int(sum(one.amount_usd for one in found)), clear

    whole = line("6")
    assert sums(line("2", hours=2), line("4", begins=START + 2 * HOUR, hours=4)) == (6, True)
    assert sums(whole, line("1", "storage")) == (7, True)
    assert sums(whole, line("4", begins=START + HOUR, hours=4), whole) == (6, True)  # They are parts of the first.
    moving = [line("6", begins=START + n * HOUR) for n in range(5)]
    assert sums(*moving) == (6, False)
    assert sums(line("6"), line("7", begins=START + HOUR)) == (7, False)
    assert sums(line("6"), line("5", begins=START + HOUR), line("6", begins=START + 6 * HOUR)) == (12, False)
    assert counted([]) == ([], True)


@pytest.mark.parametrize("granularity", [BillGranularity.DAY, BillGranularity.MONTH])
def test_a_total_of_days_or_months_is_whole_two_days_after_the_end(granularity: BillGranularity) -> None:
    end, lines = START + 6 * HOUR, [line("1")]
    assert is_whole(lines, START, end, end, BillGranularity.HOUR)
    assert not is_whole(lines, START, end, end + timedelta(hours=47), granularity)
    assert is_whole(lines, START, end, end + timedelta(hours=48), granularity)


def test_only_the_hours_that_it_existed_at_the_approved_rate_are_booked_without_a_person() -> None:
    booked = {"gpu": Decimal(9), "bandwidth": Decimal(50)}
    most_usd = most(START, START + 10 * HOUR, Decimal(1), BillingRule())
    assert 10 < most_usd < Decimal("10.1")
    assert not is_above(booked, {"gpu": Decimal(1)}, most_usd)
    assert is_above(booked, {"gpu": Decimal("1.1")}, most_usd)
    assert not is_above(booked, {"gpu": Decimal(1), "bandwidth": Decimal(90)}, most_usd)
    assert is_above(booked, {"gpu": Decimal(1), "other": Decimal("0.1")}, most_usd)
    assert not is_above({"gpu": Decimal(99)}, {"gpu": Decimal(-1)}, most_usd)
    assert not is_above(booked, {}, most_usd)
