"""Who a budget is for, when its time began, what fits, and which shares are reached."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.budgets.budget import (
    BudgetLine,
    CostView,
    Period,
    begins,
    fits,
    problems,
    reached,
    said,
    scopes_of,
    together,
)
from bot.rules.policy.policy import Policy
from bot.rules.policy.validation import validated

NOW = datetime(2026, 3, 2, 15, 30, 5, tzinfo=UTC)
FIVE = Decimal(5)


def line(limit: int, spent: int = 0, still: int = 0, period: Period = Period.MONTHLY) -> BudgetLine:
    return BudgetLine("global", "global", period, Decimal(limit), Decimal(spent), Decimal(still))


@pytest.mark.parametrize(
    ("budgets", "named"),
    [
        ({"everybody": {"daily": FIVE}}, "not one of global"),
        ({"team:research": {"daily": FIVE}}, "`teams` does not list"),
        ({"global": {"yearly": FIVE}}, "not yearly"),
        ({"global": {"daily": Decimal(-1)}}, "not daily"),
        ({"user:*": {"daily": Decimal("NaN")}}, "not daily"),
    ],
)
def test_an_unusable_budget_is_named(budgets: dict[str, Any], named: str) -> None:
    assert named in next(problems(budgets, ()))
    with pytest.raises(ValueError, match="budgets"):
        validated(replace(Policy(), budgets=budgets))


def test_usable_budgets() -> None:
    budgets = {"global": {"total": FIVE}, "team:a": {"hourly": FIVE}, "user:slack:T1/U1": {}, "label:moe.v2": {}}
    assert next(problems({**budgets, "user:*": {}}, ("a",))).startswith("budgets: `user:slack:T1/U1`")
    del budgets["user:slack:T1/U1"]
    assert list(problems({**budgets, "user:operator:ada": {}, "consumer:*": {}}, ("a",))) == []
    with pytest.raises(ValueError, match="budget_thresholds"):
        validated(replace(Policy(), budget_thresholds=(Decimal(2),)))
    one = replace(Policy(), budgets={"user:*": {"daily": FIVE}})
    for own, named in (({"user:*": (Decimal(0),)}, "between 0 and 1"), ({"global": (Decimal(1),)}, "does not list")):
        with pytest.raises(ValueError, match=f"budget_own_thresholds.*{named}"):
            validated(replace(one, budget_own_thresholds=own))
    assert validated(replace(one, budget_own_thresholds={"user:*": (Decimal("0.9"),)})).thresholds("user:*") == (
        Decimal("0.9"),
    )


def test_time_begins_with_the_day_or_the_month_or_never() -> None:
    assert begins(Period.DAILY, NOW) == datetime(2026, 3, 2, tzinfo=UTC)
    assert begins(Period.MONTHLY, NOW) == datetime(2026, 3, 1, tzinfo=UTC)
    assert (begins(Period.TOTAL, NOW), begins(Period.HOURLY, NOW)) == (None, None)


def test_a_view_is_named_by_its_bucket_or_by_its_whole_time() -> None:
    assert {view.value: view.period.value for view in CostView} == {
        "hourly": "hourly",
        "daily": "daily",
        "monthly": "monthly",
        "total": "total",
        "day": "hourly",
        "month": "daily",
        "year": "monthly",
    }


def test_a_name_of_its_own_goes_before_the_star() -> None:
    budgets = ("global", "user:*", "user:U2", "team:a", "consumer:*", "label:moe")
    assert scopes_of(budgets, ["U1"], [], ["a"], "other") == [
        ("global", "global"),
        ("team:a", "team:a"),
        ("user:U1", "user:*"),
    ]
    assert scopes_of(budgets, ["U2"], ["k1"], [], "moe") == [
        ("global", "global"),
        ("user:U2", "user:U2"),
        ("consumer:k1", "consumer:*"),
        ("label:moe", "label:moe"),
    ]
    assert scopes_of((), ["U2"], [], [], "") == []


def test_what_is_reserved_counts_and_the_tightest_budget_is_named() -> None:
    assert fits([line(10, 3, 2)], FIVE, Decimal(1)).allowed
    over = fits([line(10, 3, 3), line(10, 9, 0)], FIVE, Decimal(1))
    assert (over.allowed, over.code) == (False, "over_budget")
    assert over.sentence == (
        "This doesn't fit the monthly budget of global. It may cost $5.00, and $1.00 of $10.00 is left."
    )
    hourly = line(2, 0, 1, Period.HOURLY)
    assert fits([hourly], Decimal(100), Decimal(1)).allowed
    assert "$2.00/h" in fits([hourly], Decimal(1), Decimal("1.5")).sentence


def test_a_share_is_reached_by_whatever_counts_against_the_budget() -> None:
    shares = (Decimal(1), Decimal("0.5"), Decimal("0.8"))
    assert reached(line(10, 4), FIVE, FIVE, shares) == [Decimal("0.5"), Decimal("0.8")]
    assert reached(line(10, 5), FIVE, FIVE, shares) == [Decimal("0.5"), Decimal("0.8"), Decimal(1)]
    assert reached(line(10, 3), Decimal(1), FIVE, shares) == []
    assert reached(line(0, 0), FIVE, FIVE, shares) == []


def test_a_budget_in_one_line() -> None:
    assert said(line(300, 100, 20)) == "monthly $180.00 left of $300.00 (40% used: $100.00 spent, $20.00 reserved)"
    assert said(line(300, 100), FIVE) == "monthly $195.00 left of $300.00 (35% used: $100.00 spent, $5.00 reserved)"
    assert said(line(4, 0, 1, Period.HOURLY)) == "hourly $3.00/h left of $4.00/h (25% used)"
    assert said(line(0, 1)) == "monthly $1.00 above $0.00 (no spending allowed: $1.00 spent)"


def test_what_is_put_beside_the_policy_only_tightens() -> None:
    policy = {"user:*": {"daily": Decimal(50)}, "global": {"monthly": Decimal(100)}}
    put = {
        "user:U1": {"daily": Decimal(60), "total": Decimal(5)},
        "global": {"monthly": Decimal(80)},
        "label:x": {"daily": Decimal(1)},
    }
    assert together(policy, put) == {
        "user:*": {"daily": Decimal(50)},
        "global": {"monthly": Decimal(80)},
        "user:U1": {"daily": Decimal(50), "total": Decimal(5)},
        "label:x": {"daily": Decimal(1)},
    }
    assert together(policy, {}) == policy
