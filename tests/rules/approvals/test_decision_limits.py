"""Limits for all attempts of a request, as a decision meets them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from bot.rules.pricing.spend_limits import SetLimit
from tests.rules.approvals.test_decision import APPROVE, OTHER, REJECT, judge


def test_an_approver_lifts_a_limit_of_an_earlier_quote_in_the_dialog_and_only_there() -> None:
    held = SetLimit(1, Decimal(50), OTHER.ref)
    assert judge(limit=held).code == "amount_needed"
    assert judge(replace(APPROVE, typed_amount="123.46"), limit=held).code == "approved"
    assert judge(replace(APPROVE, typed_amount="123.46", cap_usd=Decimal(90)), limit=held).code == "approved"
    # A limit of this quote, or one that the worst case does not reach, needs no dialog.
    assert judge(limit=replace(held, version=2)).code == "approved"
    assert judge(limit=replace(held, usd=Decimal(200))).code == "approved"
    assert judge(limit=replace(held, usd=Decimal(200)), spent_usd=Decimal(1)).code == "amount_needed"


def test_nothing_is_bought_when_earlier_attempts_used_a_limit_up() -> None:
    held = SetLimit(1, Decimal(50), OTHER.ref)
    gone: Any = {"spent_usd": Decimal(50), "limit": held}
    spent = judge(**gone)
    assert (spent.code, "$50.00" in spent.sentence) == ("limit_spent", True)
    assert judge(replace(APPROVE, cap_usd=Decimal(50)), **gone).code == "limit_spent"
    lifted = replace(APPROVE, cap_usd=Decimal(60), typed_amount="123.46")
    assert judge(lifted, **gone).code == "approved"
    asked = judge(lifted, asked_usd=Decimal(49), **gone)
    assert (asked.code, "$49.00" in asked.sentence) == ("budget_spent", True)
    # The worst case of this attempt comes on top of what was spent.
    assert judge(replace(APPROVE, cap_usd=Decimal(250), typed_amount="123.46"), **gone).code == "approved"
    assert judge(replace(APPROVE, cap_usd=Decimal(251)), **gone).code == "cap_raised"
    # What costs nothing can be bought with nothing left, and a rejection needs no money.
    assert judge(worst_usd=Decimal(0), expected_usd=Decimal(0), **gone).code == "approved"
    assert judge(REJECT, **gone).code == "rejected"
