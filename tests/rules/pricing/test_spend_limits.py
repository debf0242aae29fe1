"""The spend gate."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.policy.policy import Policy
from bot.rules.pricing import spend_limits
from ledger.kernel import money
from tests.rules.builders import usd

POLICY = Policy()


def test_the_price_cap_is_the_quote_times_the_tolerance() -> None:
    assert spend_limits.price_cap(Decimal("0.40"), POLICY) == Decimal("0.44")
    assert spend_limits.price_cap(Decimal("0.0000019"), POLICY) == Decimal("0.000002")


def test_the_price_cap_never_passes_the_price_that_the_requester_named() -> None:
    assert spend_limits.price_cap(Decimal("0.35"), POLICY, Decimal("0.36")) == Decimal("0.36")
    assert spend_limits.price_cap(Decimal("0.35"), POLICY, Decimal("0.39")) == Decimal("0.385")


@given(quoted=usd())
def test_an_unchanged_price_is_always_within_its_own_approval(quoted: Decimal) -> None:
    exact = replace(POLICY, price_tolerance=Decimal(1))
    whole = money.rate(quoted + Decimal("0.0000004"))
    assert spend_limits.requote(spend_limits.price_cap(whole, exact), whole).allowed


@pytest.mark.parametrize("price", ["NaN", "Infinity", "-1"])
def test_no_cap_comes_from_a_bad_price(price: str) -> None:
    with pytest.raises(ValueError, match="finite number of dollars"):
        spend_limits.price_cap(Decimal(price), POLICY)


@pytest.mark.parametrize(
    ("fresh", "free", "outcome", "code"),
    [
        ("0.44", False, "go", "ok"),
        ("0.440001", False, "ask_again", "price_moved"),
        ("0", False, "ask_again", "price_missing"),
        ("-0.1", False, "ask_again", "price_missing"),
        ("-0.1", True, "ask_again", "price_missing"),
        ("NaN", False, "ask_again", "price_missing"),
        ("0", True, "go", "ok"),
        (None, False, "gone", "offer_gone"),
    ],
)
def test_a_fresh_price(fresh: str | None, free: bool, outcome: str, code: str) -> None:
    price = None if fresh is None else Decimal(fresh)
    verdict = spend_limits.requote(Decimal("0.44"), price, free=free)
    assert (verdict.outcome, verdict.code, verdict.allowed) == (outcome, code, outcome == "go")
    assert verdict.sentence.endswith(".")


def test_a_missing_price_is_bad_data_even_at_a_free_cloud() -> None:
    assert spend_limits.bad_price(None, free=True)


@given(quoted=usd(), fresh=usd(100))
def test_a_create_is_never_sent_above_the_tolerance(quoted: Decimal, fresh: Decimal) -> None:
    verdict = spend_limits.requote(spend_limits.price_cap(quoted, POLICY), fresh)
    assert verdict.allowed is (fresh <= quoted * Decimal("1.10"))


@pytest.mark.parametrize(
    ("billed", "code", "allowed"),
    [
        ("0.44", "ok", True),
        ("0.4400009", "ok", True),
        ("0.440001", "billed_above_cap", False),
        ("9", "billed_above_cap", False),
        ("NaN", "rate_unknown", True),
        (None, "rate_unknown", True),
    ],
)
def test_the_rate_that_a_cloud_bills(billed: str | None, code: str, allowed: bool) -> None:
    verdict = spend_limits.billed_rate(None if billed is None else Decimal(billed), Decimal("0.44"))
    assert (verdict.code, verdict.allowed) == (code, allowed)


def test_the_total_cap_is_the_worst_case_or_a_lower_limit() -> None:
    worst = Decimal("10.0000001")
    assert spend_limits.total_cap(worst) == Decimal("10.000001")
    assert spend_limits.total_cap(worst, asked_usd=Decimal(5)) == Decimal(5)
    assert spend_limits.total_cap(worst, asked_usd=Decimal(5), approver_usd=Decimal(3)) == Decimal(3)
    assert spend_limits.total_cap(worst, approver_usd=Decimal(30)) == Decimal("10.000001")


def test_what_earlier_attempts_spent_is_not_spent_again() -> None:
    left = spend_limits.total_cap(Decimal(10), asked_usd=Decimal(5), approver_usd=Decimal(6), spent_usd=Decimal("1.5"))
    assert left == Decimal("3.5")
    assert spend_limits.total_cap(Decimal(10), asked_usd=Decimal(5), spent_usd=Decimal(7)) == 0
    assert spend_limits.total_cap(Decimal(10), spent_usd=Decimal(7)) == 10


@given(worst=usd(), asked=usd(), held=usd(), spent=st.lists(usd(), max_size=4))
def test_no_number_of_attempts_passes_a_limit(
    worst: Decimal, asked: Decimal, held: Decimal, spent: list[Decimal]
) -> None:
    total = Decimal(0)
    for one in spent:
        left = spend_limits.total_cap(worst, asked_usd=asked, approver_usd=held, spent_usd=total)
        total += min(one, left)
        assert total <= min(asked, held)


def test_the_lowest_limit_of_the_latest_version_that_set_one_holds() -> None:
    first, lower = spend_limits.SetLimit(1, Decimal(4), "slack:U1"), spend_limits.SetLimit(1, Decimal(3), "slack:U2")
    lifted = spend_limits.SetLimit(3, Decimal(9), "slack:U2")
    assert spend_limits.limit_in_force([]) is None
    assert spend_limits.limit_in_force([first, lower]) == lower
    assert spend_limits.limit_in_force([lifted, first, lower]) == lifted


@pytest.mark.parametrize(
    ("new", "set_by_approver", "by_approver", "code"),
    [
        ("60", True, False, "cap_is_approvers"),
        ("60", True, True, "ok"),
        ("60", False, False, "ok"),
        ("40", True, False, "ok"),
        ("0", False, True, "bad_amount"),
        ("NaN", False, True, "bad_amount"),
    ],
)
def test_only_an_approver_lifts_an_approvers_limit(
    new: str, set_by_approver: bool, by_approver: bool, code: str
) -> None:
    verdict = spend_limits.change_cap(
        Decimal(new), Decimal(50), set_by_approver=set_by_approver, by_approver=by_approver
    )
    assert (verdict.code, verdict.allowed) == (code, code == "ok")
