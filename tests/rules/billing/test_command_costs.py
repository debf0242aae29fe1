"""The bill of a machine, shared among the commands on its GPUs: exact, and nothing is left over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.billing.command_costs import CommandTime, command_costs, split

BEGIN = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def ran(number: int, first: int, last: int) -> CommandTime:
    """A command that ran between two minutes of the hour."""
    return CommandTime(number, BEGIN + first * MINUTE, BEGIN + last * MINUTE)


def test_a_command_costs_price_by_time_by_its_share_of_the_gpus() -> None:
    found = command_costs(Decimal(8), (BEGIN, BEGIN + 60 * MINUTE), 4, [ran(1, 0, 30), ran(2, 30, 45), ran(3, 0, 60)])
    assert found.by_number == {1: Decimal(1), 2: Decimal("0.5"), 3: Decimal(2)}
    assert found.idle_usd == Decimal("4.5")


def test_time_outside_of_the_bill_costs_nothing() -> None:
    found = command_costs(Decimal(6), (BEGIN + 10 * MINUTE, BEGIN + 40 * MINUTE), 1, [ran(1, 0, 20), ran(2, 50, 60)])
    assert found.by_number == {1: Decimal(2), 2: Decimal(0)}
    assert found.idle_usd == Decimal(4)


@pytest.mark.parametrize("billed", [None, (BEGIN, BEGIN)])
def test_without_billed_time_all_of_it_is_idle(billed: tuple[datetime, datetime] | None) -> None:
    found = command_costs(Decimal(1), billed, 2, [ran(1, 0, 5)])
    assert found.by_number == {1: Decimal(0)}
    assert found.idle_usd == Decimal(1)


def test_clocks_that_disagree_never_share_more_than_the_bill() -> None:
    """Three commands claim the whole time of two GPUs each."""
    found = command_costs(Decimal(1), (BEGIN, BEGIN + 60 * MINUTE), 2, [ran(one, 0, 60) for one in (1, 2, 3)])
    assert sum(found.by_number.values()) == 1
    assert found.idle_usd == 0


def test_a_refund_is_shared_as_well() -> None:
    found = command_costs(Decimal("-0.000003"), (BEGIN, BEGIN + 60 * MINUTE), 1, [ran(1, 0, 20), ran(2, 20, 40)])
    assert sum(found.by_number.values(), found.idle_usd) == Decimal("-0.000003")


@given(
    st.integers(0, 10**10),
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), min_size=1, max_size=30),
)
def test_shares_and_idle_time_are_the_bill(micro: int, gpus: int, times: list[tuple[int, int]]) -> None:
    commands = [ran(number, min(pair), max(pair)) for number, pair in enumerate(times, 1)]
    bill = Decimal(micro) / 10**6
    found = command_costs(bill, (BEGIN, BEGIN + 90 * MINUTE), gpus, commands)
    assert sum(found.by_number.values(), found.idle_usd) == bill
    assert min(*found.by_number.values(), found.idle_usd) >= 0


def test_a_part_is_never_a_micro_dollar_away_from_its_share() -> None:
    assert split(10, [1, 1, 1]) == [4, 3, 3]
    assert split(0, [1, 2]) == [0, 0]
