"""Standing in: only what the policy gives is passed on, to a person, for a time, and never to decide in a circle."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from bot.rules.approvals.approvers import DeciderFacts, eligible_delegators
from bot.rules.approvals.authority import ApprovalPlan
from bot.rules.approvals.decision import DecisionInput, RequestFacts, chosen_delegator, verdict
from bot.rules.approvals.delegation import last_moment, may_delegate
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApprovalTier, ApproverGroup
from ledger.kernel.actor import Actor, ActorKind
from tests.rules.approvals.test_decision import APPROVE, CANCEL, ONE, REJECT, REQUEST
from tests.rules.builders import NOW

BOB, CAROL, DAVE = (Actor(ActorKind.SLACK, name, "T1") for name in ("UBOB", "UCAROL", "UDAVE"))
ADA = Actor(ActorKind.OPERATOR, "ada")
POLICY = Policy(
    approvers=("UBOB", "UCAROL"),
    same_person=(("UBOB", "operator:ada"), ("UMAL", "operator:mal")),
    approval_groups={"finance": ("UFIN",)},
    never_approve=("UEVE", "operator:mal"),
)
TODAY = NOW.date()
TWO = ApprovalPlan(2, "", False, False)


def test_a_day_is_given_whole() -> None:
    assert last_moment(date(2026, 12, 1)).isoformat() == "2026-12-02T00:00:00+00:00"


@pytest.mark.parametrize(
    ("who", "to", "until", "code"),
    [
        (DeciderFacts(BOB), DAVE, TODAY, "ok"),
        (DeciderFacts(BOB), DAVE, TODAY + timedelta(days=92), "ok"),
        (DeciderFacts(BOB), DAVE, TODAY + timedelta(days=93), "bad_until"),
        (DeciderFacts(BOB), DAVE, TODAY - timedelta(days=1), "bad_until"),
        (DeciderFacts(BOB), DAVE, None, "bad_delegate"),
        (DeciderFacts(BOB), None, TODAY, "bad_delegate"),
        (DeciderFacts(BOB), Actor(ActorKind.CONSUMER, "atlas"), TODAY, "bad_delegate"),
        (DeciderFacts(BOB), ADA, TODAY, "own_delegate"),
        (DeciderFacts(BOB), Actor(ActorKind.SLACK, "UBOB"), TODAY, "own_delegate"),
        (DeciderFacts(BOB), Actor(ActorKind.SLACK, "UEVE"), TODAY, "denied_delegate"),
        (DeciderFacts(BOB), Actor(ActorKind.SLACK, "UMAL"), TODAY, "denied_delegate"),
        (DeciderFacts(DAVE), BOB, TODAY, "not_an_approver"),
        # What somebody has for another one only is not theirs to give.
        (DeciderFacts(DAVE, behalf=(DeciderFacts(BOB),)), CAROL, TODAY, "not_an_approver"),
        (DeciderFacts(BOB, known=False), DAVE, TODAY, "not_an_approver"),
        (DeciderFacts(BOB, is_guest=True), DAVE, TODAY, "not_an_approver"),
    ],
)
def test_who_may_name_whom_until_when(who: DeciderFacts, to: Actor | None, until: date | None, code: str) -> None:
    assert may_delegate(POLICY, who, to, until, NOW).code == code


def test_where_slack_only_notifies_nobody_names_a_delegate_there() -> None:
    policy = replace(POLICY, approvers=("UBOB", "operator:ivy"), allow_slack_decisions=False)
    assert may_delegate(policy, DeciderFacts(BOB), DAVE, TODAY, NOW).code == "slack_off"
    assert may_delegate(policy, DeciderFacts(Actor(ActorKind.OPERATOR, "ivy")), DAVE, TODAY, NOW).allowed


def judge(
    who: DeciderFacts,
    what: DecisionInput = APPROVE,
    plan: ApprovalPlan = ONE,
    policy: Policy = POLICY,
    **request: object,
) -> str:
    shown: RequestFacts = replace(REQUEST, **request)  # type: ignore[arg-type] # Named in each test.
    return verdict(policy, plan, what, shown, who, NOW).code


def test_a_delegate_decides_what_the_delegator_may_and_nothing_of_theirs() -> None:
    dave = DeciderFacts(DAVE, behalf=(DeciderFacts(BOB),))
    assert (judge(dave), judge(dave, REJECT)) == ("approved", "rejected")
    assert judge(dave, CANCEL) == "not_yours"  # To withdraw is not to decide.
    assert judge(dave, requester=DAVE) == "requester"
    alone = replace(POLICY, allow_self_approval=True)
    assert (judge(dave, policy=alone, requester=DAVE), judge(dave, policy=alone)) == ("requester", "approved")
    assert judge(DeciderFacts(BOB), policy=alone, requester=BOB) == "approved"
    assert judge(DeciderFacts(DAVE, behalf=(DeciderFacts(BOB, known=False),))) == "delegator_unknown"
    assert judge(dave, requester=BOB) == "delegator_requested"
    assert judge(dave, requester=ADA) == "delegator_requested"  # Bob under another name.
    assert judge(dave, linked=(BOB,)) == "delegator_requested"  # Bob's program asks.
    assert judge(DeciderFacts(DAVE, behalf=(DeciderFacts(BOB), DeciderFacts(CAROL))), requester=BOB) == "approved"
    finance = ApproverGroup(ApprovalTier("large", "finance"))
    assert judge(dave, mandate=finance) == "not_an_approver"
    assert judge(DeciderFacts(CAROL, behalf=(DeciderFacts(BOB),)), mandate=finance) == "other_group"
    bob = DeciderFacts(BOB)
    for gone in (
        replace(bob, is_deleted=True),
        replace(bob, known=False),
        replace(bob, team_ok=False),
        replace(bob, is_bot=True),
        replace(bob, is_guest=True),
    ):
        assert eligible_delegators(POLICY, DeciderFacts(DAVE, behalf=(gone,)), ApproverGroup()) == ()
    eve = DeciderFacts(Actor(ActorKind.SLACK, "UEVE", "T1"), behalf=(DeciderFacts(BOB),))
    assert judge(eve) == "not_an_approver"


def test_one_approval_counts_once_also_through_a_delegate() -> None:
    dave = DeciderFacts(DAVE, behalf=(DeciderFacts(BOB),))
    assert judge(dave, plan=TWO, approvals=(BOB.ref,)) == "already_voted"
    assert judge(dave, plan=TWO, approvals=(ADA.ref,)) == "already_voted"
    assert judge(DeciderFacts(BOB), plan=TWO, approvals=(DAVE.ref,), delegators=(BOB.ref,)) == "already_voted"
    assert judge(DeciderFacts(CAROL), plan=TWO, approvals=(DAVE.ref,), delegators=(BOB.ref,)) == "approved"
    both = DeciderFacts(DAVE, behalf=(DeciderFacts(BOB), DeciderFacts(CAROL)))
    voted = replace(REQUEST, approvals=(BOB.ref,))
    assert chosen_delegator(POLICY, voted, both) == CAROL
    assert judge(both, plan=TWO, approvals=(BOB.ref,)) == "approved"
    # One person is one voice, however many they stand in for.
    assert judge(both, plan=TWO, approvals=(DAVE.ref,), delegators=(BOB.ref,)) == "already_voted"
    assert chosen_delegator(POLICY, REQUEST, DeciderFacts(BOB, behalf=(DeciderFacts(CAROL),))) is None
    assert chosen_delegator(POLICY, REQUEST, DeciderFacts(DAVE)) is None
