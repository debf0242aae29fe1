"""The ledger against a bill: whole or not, later and dearer lines, and what cannot be known."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.billing.true_up import BillLineItem, between, corrections, is_late, is_whole
from providers.capabilities import BillingRule
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
    assert not is_late(START, START + timedelta(days=3, hours=23), [], whole=False)
    assert is_late(START, START + timedelta(days=4), [], whole=False)
    assert is_late(START, START + timedelta(days=4), [line("1")], whole=False)
    assert not is_late(START, START + timedelta(days=9), [line("1")], whole=True)


def test_what_a_silent_cloud_can_have_charged() -> None:
    rule, rate = BillingRule(), Decimal(6)
    gone = START + 3 * HOUR
    assert between(START, START + HOUR, START + 2 * HOUR, gone, rate, rule) == (Decimal(6), Decimal(18))
    assert between(START, None, None, gone, rate, rule) == (Decimal(0), Decimal(18))
    assert between(None, START, None, gone, rate, rule) == (Decimal(18), Decimal(18))
