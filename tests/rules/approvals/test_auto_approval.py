"""The policy's own approval: small spends, signed for, up to an amount a day and until a day; never what needs more."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.approvals.authority import NOTHING, Authority
from bot.rules.approvals.auto_approval import AUTO_APPROVAL_PREFIX, auto_approval, fingerprint, signer
from bot.rules.policy.policy import Policy
from bot.rules.policy.validation import validated
from bot.rules.values.phrases import Verdict
from tests.support.clock import START

POLICY = validated(
    Policy(
        auto_approve_below_usd=Decimal(5),
        auto_approve_signed_by="operator:ada",
        auto_approve_until=START.date(),
        auto_approve_daily_usd=Decimal(10),
    )
)


def judged(policy: Policy = POLICY, worst: str = "4", **changes: Any) -> Verdict:
    given: dict[str, Any] = {"approved_usd": Decimal(0), "asked_before": False, "now": START} | changes
    hours = given.pop("hours", Decimal(2))
    spend = Authority(Decimal(worst), given.pop("expected", Decimal(worst)), hours)
    return auto_approval(policy, spend, given.pop("earlier", NOTHING), **given)


def test_a_small_spend_is_approved_and_says_who_signed_for_it() -> None:
    found = judged()
    assert (found.allowed, found.code) == (True, "approved")
    assert found.sentence == (
        "Approved by the policy, because at most $4.00 is below $5.00. "
        f"operator:ada signed for that until {START:%Y-%m-%d} (policy {fingerprint(POLICY)})."
    )


@pytest.mark.parametrize(
    ("policy", "changes", "code"),
    [
        (Policy(), {}, "not_covered"),
        (POLICY, {"worst": "5"}, "not_covered"),
        (POLICY, {"hours": Decimal(13)}, "not_covered"),
        (replace(POLICY, confirm_above_usd=Decimal(3)), {}, "not_covered"),
        (replace(POLICY, two_approvers_above_usd=Decimal(3)), {}, "not_covered"),
        (POLICY, {"asked_before": True}, "earlier_attempt"),
        (POLICY, {"now": START + timedelta(days=1)}, "auto_approval_expired"),
        (replace(POLICY, auto_approve_until=None), {}, "auto_approval_expired"),
        (POLICY, {"approved_usd": Decimal("6.01")}, "auto_approval_used_up"),
    ],
)
def test_everything_else_is_decided_by_a_person(policy: Policy, changes: dict[str, Any], code: str) -> None:
    found = judged(policy, **changes)
    assert (found.allowed, found.code) == (False, code)
    assert bool(found.sentence) is (code != "not_covered")


def test_the_limit_of_a_day_may_be_reached_exactly() -> None:
    assert judged(approved_usd=Decimal(6)).allowed


def test_the_approver_names_the_version_of_the_policy() -> None:
    other = replace(POLICY, min_disk_gb={"default": 51, "moe": 64})
    assert fingerprint(POLICY) == fingerprint(replace(POLICY))
    assert fingerprint(POLICY) != fingerprint(other)
    assert signer(POLICY).ref == f"{AUTO_APPROVAL_PREFIX}{fingerprint(POLICY)}"


@pytest.mark.parametrize(
    "change",
    [
        {"auto_approve_signed_by": " "},
        {"auto_approve_until": None},
        {"auto_approve_daily_usd": Decimal(-1)},
    ],
)
def test_a_standing_approval_needs_somebody_who_signed_and_an_end(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="auto_approve_"):
        validated(replace(POLICY, **change))


def test_the_day_of_its_end_is_a_whole_day() -> None:
    day = replace(POLICY, auto_approve_until=date(START.year, START.month, START.day))
    assert judged(day, now=START.replace(hour=23, minute=59)).allowed
