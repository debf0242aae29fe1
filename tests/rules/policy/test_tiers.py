"""Tiers: the first row that fits decides, a row of several conditions wants all of them, and more groups join late."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.approvals.approvers import (
    DeciderFacts,
    groups,
    is_approver,
    is_approver_of,
    is_slack_group,
    mentioned_approvers,
    with_steps,
)
from bot.rules.approvals.authority import Authority, plan
from bot.rules.approvals.decision import verdict
from bot.rules.policy import tiers
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApprovalTier, ApproverGroup, Weighed
from bot.rules.policy.validation import validated
from ledger.kernel.actor import Actor, ActorKind
from tests.rules.approvals.test_decision import APPROVE, CANCEL, REJECT, REQUEST
from tests.rules.builders import NOW

SPEND = Weighed(Decimal(300), Decimal(6), 8, frozenset({"H100-SXM"}), frozenset({"research"}))
LARGE = ApprovalTier("large", "finance", 2, above_usd=Decimal(200), then=("directors",))
GROUPS = {"finance": ("UFIN", "S0FIN"), "leads": ("UBOSS", "operator:ada"), "directors": ("UDIR", "UCEO")}
POLICY = Policy(
    approvers=("UBOSS",),
    approver_groups=("S0ALL",),
    may_approve_not_pinged=("UCEO",),
    approval_groups=GROUPS,
    approval_tiers=(LARGE,),
    escalate_to=("leads",),
)


def facts(name: str, *in_groups: str) -> DeciderFacts:
    actor = Actor.from_ref(name) if ":" in name else Actor(ActorKind.SLACK, name, "T1")
    return DeciderFacts(actor, groups=in_groups)


@pytest.mark.parametrize(
    ("condition", "value", "words"),
    [
        ("above_usd", Decimal("299.99"), "up to $300.00 is above $299.99"),
        ("above_usd", Decimal(300), None),
        ("above_hours", Decimal(5), "6 hours is above 5 hours"),
        ("above_hours", Decimal(6), None),
        ("above_gpus", 7, "8 GPUs is above 7"),
        ("above_gpus", 8, None),
        ("gpus", ("H100",), "it may be on H100-SXM"),
        ("gpus", ("4090",), None),
        ("team", "research", "the team research asks"),
        ("team", "sales", None),
    ],
)
def test_each_condition_of_a_row(condition: str, value: Any, words: str | None) -> None:
    tier = ApprovalTier("one", **{condition: value})
    assert (tiers.tier_of([tier], SPEND) is tier) is (words is not None)
    assert tiers.because(tier, SPEND) == (words or "")


def test_all_conditions_of_a_row_hold_and_the_first_row_wins() -> None:
    both = ApprovalTier("both", above_usd=Decimal(200), team="research")
    assert tiers.tier_of([both, LARGE], SPEND) is both
    assert tiers.because(both, SPEND) == "up to $300.00 is above $200.00, and the team research asks"
    assert tiers.tier_of([both, LARGE], replace(SPEND, teams=frozenset())) is LARGE
    assert tiers.tier_of([both, LARGE], replace(SPEND, worst_usd=Decimal(1))) is None
    every = ApprovalTier("every")
    assert (tiers.tier_of([every], SPEND), tiers.because(every, SPEND)) == (every, "")


@given(st.integers(0, 5), st.integers(0, 100_000), st.integers(60, 50_000))
def test_further_groups_join_one_after_another_and_none_leaves(count: int, waited_s: int, after_s: int) -> None:
    now = NOW + timedelta(seconds=waited_s)
    number, following = tiers.steps(count, NOW, now, after_s), tiers.next_step(count, NOW, now, after_s)
    assert 0 <= number <= count
    assert tiers.steps(count, NOW, now + timedelta(seconds=after_s), after_s) >= number
    assert (following is None) is (number == count)
    assert following is None or (following > now and tiers.steps(count, NOW, following, after_s) == number + 1)
    assert tiers.steps(count, NOW, NOW - timedelta(seconds=1), after_s) == 0


def test_who_is_asked_and_who_may_decide() -> None:
    nobody, large = ApproverGroup(), ApproverGroup(LARGE, "why")
    assert mentioned_approvers(POLICY, nobody) == ("UBOSS", "S0ALL")
    assert mentioned_approvers(POLICY, large) == ("UFIN", "S0FIN")
    later = with_steps(POLICY, large, NOW, NOW + timedelta(seconds=POLICY.escalate_after_s))
    assert (later.because, groups(POLICY, later)) == ("why", ("finance", "directors"))
    assert mentioned_approvers(POLICY, later) == ("UFIN", "S0FIN", "UDIR")  # The chief may decide and is never told.
    assert groups(POLICY, with_steps(POLICY, nobody, NOW, NOW + timedelta(days=9))) == ("approvers", "leads")
    for who, of_all, of_large, of_later in (
        (facts("UBOSS"), True, False, False),
        (facts("UX", "S0ALL"), True, False, False),
        (facts("UFIN"), False, True, True),
        (facts("UX", "S0FIN"), False, True, True),
        (facts("UDIR"), False, False, True),
        (facts("UCEO"), True, True, True),
        (facts("operator:eve"), False, False, False),
    ):
        found = [is_approver_of(POLICY, who, mandate) for mandate in (nobody, large, later)]
        assert found == [of_all, of_large, of_later], who
        assert is_approver(POLICY, who) is any((of_all, of_large, of_later))
        assert not is_approver(replace(POLICY, never_approve=(who.actor.ref,)), who)


def test_a_tier_says_how_many_of_whom_and_why() -> None:
    mandate = ApproverGroup(LARGE, tiers.because(LARGE, SPEND))
    found = plan(POLICY, Authority(Decimal(300), Decimal(90), Decimal(6)), mandate=mandate)
    assert (found.required, found.rule) == (
        2,
        "Tier large: needs 2 approvals from finance, because up to $300.00 is above $200.00.",
    )
    cheap = replace(POLICY, auto_approve_below_usd=Decimal(50), two_approvers_above_usd=Decimal(1))
    one = ApproverGroup(ApprovalTier("every"))
    assert plan(cheap, Authority(Decimal("0.5"), Decimal("0.5"), Decimal(1)), mandate=one).rule == (
        "Tier every: needs 1 approval from approvers."
    )
    assert plan(cheap, Authority(Decimal(2), Decimal(1), Decimal(1)), mandate=one).required == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"approval_groups": {"no way": ("U1",)}}, "not a name for a group"),
        ({"approval_groups": {"approvers": ("U1",)}}, "not a name for a group"),
        ({"approval_groups": {"leads": ()}}, "leads needs ids"),
        ({"approval_groups": {"leads": ("bob",)}}, "'bob' is no id"),
        ({"escalate_to": ("leads",)}, "'leads' is not one of approval_groups"),
        ({"approval_tiers": (ApprovalTier("a b"),)}, "not a name for a tier"),
        ({"approval_tiers": (ApprovalTier("a", approvals=0),)}, "approvals must lie"),
        ({"approval_tiers": (ApprovalTier("a", "leads"),)}, "'leads' is not one of"),
        ({"approval_tiers": (ApprovalTier("a", then=("leads",)),)}, "'leads' is not one of"),
        ({"approval_tiers": (ApprovalTier("a", above_gpus=-1),)}, "a limit must be 0 or more"),
        ({"approval_tiers": (ApprovalTier("a", above_usd=Decimal("NaN")),)}, "a limit must be 0 or more"),
        ({"approval_tiers": (ApprovalTier("a", gpus=("Zx81",)),)}, "'Zx81' is not a GPU"),
        ({"approval_tiers": (ApprovalTier("a", team="sales"),)}, "does not list sales"),
        ({"approval_tiers": (ApprovalTier("a", above_usd=Decimal(9)), ApprovalTier("a"))}, "there twice"),
        ({"approval_tiers": (ApprovalTier("a"), ApprovalTier("b", above_gpus=4))}, "b is never reached"),
        (
            {"approval_tiers": (ApprovalTier("a", gpus=("H100",)), ApprovalTier("b", gpus=("H100-SXM",)))},
            "b is never reached",
        ),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        validated(Policy(**settings))


def test_a_table_from_strict_to_loose_is_taken() -> None:
    rows = (
        ApprovalTier("huge", "finance", 2, above_usd=Decimal(1000)),
        LARGE,
        ApprovalTier("h100", gpus=("H100",)),
        ApprovalTier("lab", "leads", team="research"),
        ApprovalTier("rest", above_hours=Decimal(3)),
    )
    validated(replace(POLICY, approval_tiers=rows, teams={"research": ("U1",)}))


def test_a_decision_of_another_group_is_refused_and_withdrawing_is_not() -> None:
    large, boss = ApproverGroup(LARGE), facts("UBOSS")
    needed = plan(POLICY, Authority(Decimal(300), Decimal(90), Decimal(6)), mandate=large)
    request = replace(REQUEST, mandate=large)
    for what, code in ((APPROVE, "other_group"), (REJECT, "other_group"), (CANCEL, "cancelled")):
        assert verdict(POLICY, needed, what, request, boss, NOW).code == code
    assert [is_slack_group(name) for name in GROUPS["finance"]] == [False, True]
