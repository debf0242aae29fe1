"""Spend drift as arithmetic: what is expected, when that is too much, and what is asked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.policy.policy import Policy
from bot.rules.sessions.expiration import ended_by
from bot.rules.sessions.overspend import (
    Agreed,
    Approved,
    Seen,
    SpendForecast,
    expected_end,
    is_over,
    projected,
    question,
    spend_forecast,
)

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
COURSE = SpendForecast(Decimal(10), Decimal(20), Decimal(4), Decimal(2), NOW + 3 * HOUR)


def test_what_is_left_is_what_is_billed_until_it_ends_and_the_cap_holds() -> None:
    assert projected(COURSE, NOW) == Decimal(10)
    assert projected(COURSE, NOW + 9 * HOUR) == Decimal(4)
    assert projected(replace(COURSE, price_usd_h=Decimal(100)), NOW) == Decimal(20)
    assert projected(replace(COURSE, spent_usd=Decimal(21)), NOW) == Decimal(21)


@pytest.mark.parametrize(("price", "over"), [("2.33", False), ("2.3367", True)])
def test_the_tolerance_is_a_tenth_and_a_cent(price: str, over: bool) -> None:
    assert is_over(replace(COURSE, price_usd_h=Decimal(price)), Decimal("1.10"), NOW) is over


def test_it_runs_until_its_agent_says_or_as_estimated_and_never_beyond_its_end() -> None:
    end, began = NOW + 5 * HOUR, NOW - HOUR
    assert expected_end(end, began, None, None, NOW) == end
    assert expected_end(end, began, Decimal(3), None, NOW) == NOW + 2 * HOUR
    assert expected_end(end, began, Decimal(3), NOW + 4 * HOUR, NOW) == NOW + 4 * HOUR
    assert expected_end(end, began, Decimal(3), NOW + 9 * HOUR, NOW) == end
    assert expected_end(end, began, Decimal("0.5"), None, NOW) == NOW
    assert expected_end(NOW - HOUR, began, None, None, NOW) == NOW - HOUR


def test_the_question_names_both_figures_and_what_follows() -> None:
    dear = replace(COURSE, price_usd_h=Decimal(3))
    said = question(dear, 15, can_pause=True, now=NOW)
    assert said == (
        "It was approved at about $10.00 and will cost about $13.00 ($4.00 so far, at $3.00/h). "
        "Without an approval within 15 minutes it is stopped, and its disk stays."
    )
    assert "its agent saves a checkpoint" in question(dear, 15, can_pause=False, now=NOW)


def test_what_an_approved_end_is_called() -> None:
    two, cap, policy = Decimal(2), Decimal(12), Policy(max_hours=Decimal(12))
    assert ended_by(two, policy, spent="", unconfirmed=False) == (
        "reservation_over",
        "The approved 2 hours have ended.",
    )
    assert ended_by(cap, policy, spent="", unconfirmed=False)[0] == "hours_cap"
    assert ended_by(cap, policy, spent="$3.00", unconfirmed=False) == (
        "budget_cap",
        "The approved amount of $3.00 is used up.",
    )
    # Before the end it is not told as if it had come: the amount is not used up yet.
    ahead = ended_by(two, policy, spent="$3.00", unconfirmed=False, ahead=True)
    assert ahead == ("budget_cap", "The approved amount of $3.00 will be used up then.")
    assert ended_by(two, policy, spent="", unconfirmed=False, ahead=True)[1] == "The approved 2 hours end then."
    code, said = ended_by(two, policy, spent="", unconfirmed=True)
    assert (code, said) == ("drift_unconfirmed", "The approved 2 hours have ended. Nobody approved its higher cost.")


def test_a_course_adds_what_was_agreed_and_a_confirmed_figure_takes_the_place_of_what_was_before() -> None:
    began, later = NOW, NOW + timedelta(hours=2)
    seen = Seen(began, Decimal(2), Decimal("0.50"))
    more = Agreed(began + timedelta(minutes=5), Decimal(3), Decimal(4))
    figure = Agreed(began + timedelta(minutes=10), Decimal(9), None)
    last = Agreed(began + timedelta(minutes=15), Decimal(2), Decimal(1))
    deadline = began + timedelta(hours=24)

    def found(*after: Agreed, hours: Decimal | None = Decimal(6)) -> SpendForecast:
        return spend_forecast(Approved(Decimal(5), Decimal(50), hours, after), seen, deadline, None, later)

    assert (found().approved_usd, found().until) == (Decimal(5), began + timedelta(hours=6))
    assert (found(more).approved_usd, found(more).until) == (Decimal(8), began + timedelta(hours=10))
    assert found(more, figure).approved_usd == Decimal(9)
    assert found(more, figure, last).approved_usd == Decimal(11)
    assert found(hours=None).until == deadline
    assert found().spent_usd == Decimal(2)


def test_a_boot_that_was_faster_than_expected_is_no_overspend() -> None:
    """Ten minutes at $3 an hour were expected without three minutes of a boot, and the machine ran at once."""
    ends = NOW + timedelta(minutes=10)
    course = SpendForecast(Decimal("0.35"), Decimal(5), Decimal(0), Decimal(3), ends, free_boot_usd=Decimal("0.15"))
    assert not is_over(course, Decimal("1.1"), NOW)
    assert is_over(replace(course, free_boot_usd=Decimal(0)), Decimal("1.1"), NOW)
    assert is_over(replace(course, price_usd_h=Decimal(4)), Decimal("1.1"), NOW)
