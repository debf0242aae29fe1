"""Cost to completion: by hand, against what was approved, and for every progress."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.plans.completion import (
    LONE_SPREAD,
    ApprovedScope,
    FinishedJob,
    Outlook,
    Rate,
    cost_per_success,
    rate_from,
    to_completion,
)

#: 1,000 tokens/s, between 800 and 1,250: an hour is 3.6 million tokens.
RATE = Rate(Decimal(1000), Decimal(800), Decimal(1250))


def test_by_hand() -> None:
    """7,200 steps of 1,000 tokens at 1,000 tokens/s are two hours; at $2.50 an hour $5 on top of $3 spent."""
    found = to_completion(
        2_800, 10_000, 1_000, RATE, ApprovedScope(Decimal("2.50"), Decimal(3), Decimal(10), Decimal(4))
    )
    assert found.outlook is Outlook.WITHIN
    assert found.steps_left == 7_200
    assert found.hours is not None
    assert found.total_usd is not None
    assert (found.hours.best, found.hours.expected, found.hours.worst) == (Decimal("1.6"), Decimal(2), Decimal("2.5"))
    assert (found.total_usd.best, found.total_usd.expected, found.total_usd.worst) == (
        Decimal(7),
        Decimal(8),
        Decimal("9.25"),
    )
    assert found.sentence == (
        "7,200 steps left: 2 hours (1.6 hours to 2.5 hours), $8.00 ($7.00 to $9.25) in all. "
        "Inside the approval even in the worst case."
    )


@pytest.mark.parametrize(
    ("approved", "hours_left", "outlook", "end"),
    [
        ("9.25", "2.5", Outlook.WITHIN, "Inside the approval even in the worst case."),
        ("9.24", None, Outlook.AT_RISK, "Inside the approval as expected, beyond it in the worst case."),
        (None, "2.4", Outlook.AT_RISK, "Inside the approval as expected, beyond it in the worst case."),
        ("7.50", None, Outlook.OVER, "Beyond the approval. Expected $0.50 above the approval."),
        (None, "1.5", Outlook.OVER, "Beyond the approval. Expected 30 minutes beyond the approved end."),
        (None, None, Outlook.WITHIN, "Nothing was approved to compare with."),
    ],
)
def test_the_approval_is_compared(approved: str | None, hours_left: str | None, outlook: Outlook, end: str) -> None:
    scope = ApprovedScope(
        Decimal("2.50"),
        Decimal(3),
        Decimal(approved) if approved else None,
        Decimal(hours_left) if hours_left else None,
    )
    found = to_completion(2_800, 10_000, 1_000, RATE, scope)
    assert found.outlook is outlook
    assert found.sentence.endswith(end)


@pytest.mark.parametrize("step", [10_000, 12_000])
def test_a_finished_job_costs_no_more(step: int) -> None:
    found = to_completion(step, 10_000, 1_000, None, ApprovedScope(Decimal("2.50"), Decimal(3)))
    assert found.outlook is Outlook.DONE
    assert found.steps_left == 0
    assert found.total_usd is not None
    assert found.total_usd.worst == 3
    assert "nothing is left to compute; $3.00 were spent" in found.sentence


def test_without_a_rate_no_end_is_told() -> None:
    found = to_completion(0, 10, 1_000, None, ApprovedScope(Decimal(1)))
    assert (found.outlook, found.hours, found.total_usd) == (Outlook.NO_RATE, None, None)
    assert found.sentence == "10 steps left; no rate of tokens is known, so its end can't be predicted."
    slow = to_completion(0, 10**12, 10**6, RATE, ApprovedScope(Decimal(1)))
    assert "the rate is too low for a forecast" in slow.sentence


@pytest.mark.parametrize(
    ("step", "target", "tokens", "scope"),
    [
        (-1, 10, 1, ApprovedScope(Decimal(1))),
        (0, 0, 1, ApprovedScope(Decimal(1))),
        (0, 10, 0, ApprovedScope(Decimal(1))),
        (0, 10, 1, ApprovedScope(Decimal(-1))),
        (0, 10, 1, ApprovedScope(Decimal("NaN"))),
        (0, 10, 1, ApprovedScope(Decimal(1), Decimal(1), Decimal("Infinity"))),
        (0, 10, 1, ApprovedScope(Decimal(1), hours_left=Decimal(-2))),
    ],
)
def test_impossible_progress_is_refused(step: int, target: int, tokens: int, scope: ApprovedScope) -> None:
    with pytest.raises(ValueError, match=r"is not progress|must be finite"):
        to_completion(step, target, tokens, RATE, scope)


def test_the_rate_is_the_median_of_what_was_seen() -> None:
    assert rate_from([Decimal(3), Decimal(1), Decimal(2)]) == Rate(Decimal(2), Decimal(1), Decimal(3))
    assert rate_from([Decimal(1), Decimal(2), Decimal(3), Decimal(4)]) == Rate(Decimal("2.5"), Decimal(1), Decimal(4))
    assert rate_from([Decimal(n) for n in range(1, 21)]) == Rate(Decimal("10.5"), Decimal(3), Decimal(18))
    assert rate_from([Decimal(8)]) == Rate(Decimal(8), 8 * (1 - LONE_SPREAD), 8 * (1 + LONE_SPREAD))
    assert rate_from([Decimal(0), Decimal(-1), Decimal("NaN"), Decimal("Infinity")]) is None


RATES = st.lists(st.decimals(1, 10**7, places=2), min_size=1, max_size=30).map(rate_from)
STEPS = st.integers(0, 10**6)


@given(STEPS, st.integers(1, 10**6), st.integers(1, 10**6), RATES, st.decimals(0, 100, places=4))
def test_the_cases_are_ordered(step: int, target: int, tokens: int, rate: Rate | None, price: Decimal) -> None:
    found = to_completion(step, target, tokens, rate, ApprovedScope(price, Decimal(1), Decimal(50), Decimal(12)))
    if found.hours is not None and found.total_usd is not None:
        assert found.hours.best <= found.hours.expected <= found.hours.worst
        assert Decimal(1) <= found.total_usd.best <= found.total_usd.expected <= found.total_usd.worst
    if found.outlook is Outlook.WITHIN and found.total_usd is not None and found.hours is not None:
        assert found.total_usd.worst <= 50
        assert found.hours.worst <= 12


@given(STEPS, st.integers(0, 10**5), st.integers(1, 10**6), RATES)
def test_more_progress_never_costs_more(step: int, further: int, tokens: int, rate: Rate | None) -> None:
    target, scope = 10**6 + 10**5, ApprovedScope(Decimal("1.5"))
    before, after = (to_completion(at, target, tokens, rate, scope).total_usd for at in (step, step + further))
    if before is not None and after is not None:
        assert after.expected <= before.expected


def test_failures_are_part_of_what_a_success_costs() -> None:
    found = cost_per_success([FinishedJob(Decimal("1.53"), True)] * 4 + [FinishedJob(Decimal("1.53"), False)])
    assert (found.runs, found.successes, found.success_rate) == (5, 4, Decimal("0.8"))
    assert found.per_success_usd == Decimal("1.91")
    assert found.sentence == "4 of 5 finished runs succeeded: $1.91 per success."


def test_no_success_has_no_price() -> None:
    assert cost_per_success([]).success_rate is None
    found = cost_per_success([FinishedJob(Decimal(2), False)])
    assert found.per_success_usd is None
    assert found.sentence == "1 finished run, no success yet; $2.00 were spent."
