"""The spend gate."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given

from bot.rules import spend
from bot.rules.policy import Policy
from tests.rules.builders import usd

POLICY = Policy()


def test_the_price_cap_is_the_quote_times_the_tolerance() -> None:
    assert spend.price_cap(Decimal("0.40"), POLICY) == Decimal("0.44")
    assert spend.price_cap(Decimal("0.0000019"), POLICY) == Decimal("0.000002")


@pytest.mark.parametrize("price", ["NaN", "Infinity", "-1"])
def test_no_cap_comes_from_a_bad_price(price: str) -> None:
    with pytest.raises(ValueError, match="finite number of dollars"):
        spend.price_cap(Decimal(price), POLICY)


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
    verdict = spend.requote(Decimal("0.44"), price, free=free)
    assert (verdict.outcome, verdict.code, verdict.allowed) == (outcome, code, outcome == "go")
    assert verdict.sentence.endswith(".")


def test_a_missing_price_is_bad_data_even_at_a_free_cloud() -> None:
    assert spend.bad_price(None, free=True)


@given(quoted=usd(), fresh=usd(100))
def test_a_create_is_never_sent_above_the_tolerance(quoted: Decimal, fresh: Decimal) -> None:
    verdict = spend.requote(spend.price_cap(quoted, POLICY), fresh)
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
    verdict = spend.billed_rate(None if billed is None else Decimal(billed), Decimal("0.44"))
    assert (verdict.code, verdict.allowed) == (code, allowed)


def test_the_total_cap_is_the_worst_case_or_a_lower_limit() -> None:
    worst = Decimal("10.0000001")
    assert spend.total_cap(worst) == Decimal("10.000001")
    assert spend.total_cap(worst, asked_usd=Decimal(5)) == Decimal(5)
    assert spend.total_cap(worst, asked_usd=Decimal(5), approver_usd=Decimal(3)) == Decimal(3)
    assert spend.total_cap(worst, approver_usd=Decimal(30)) == Decimal("10.000001")


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
    verdict = spend.change_cap(Decimal(new), Decimal(50), set_by_approver=set_by_approver, by_approver=by_approver)
    assert (verdict.code, verdict.allowed) == (code, code == "ok")
