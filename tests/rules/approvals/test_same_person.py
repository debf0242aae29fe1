"""Several names of one person: each has the rights of all, and together they are one approver."""

from __future__ import annotations

from dataclasses import replace

from bot.rules.approvals.approvers import ANYBODY, is_approver, mentioned_approvers
from bot.rules.approvals.authority import ApprovalPlan
from bot.rules.approvals.decision import DeciderFacts
from bot.rules.policy.policy import Policy
from ledger.kernel.actor import Actor, ActorKind
from tests.rules.approvals.test_decision import ADA, BOSS, POLICY, judge

PROGRAM = Actor(ActorKind.CONSUMER, "atlas")


def test_each_name_of_a_person_has_the_rights_of_all_and_a_program_has_its_own() -> None:
    policy = Policy(approvers=("U2",), same_person=(("U2", "operator:ada", PROGRAM.ref),))
    assert is_approver(policy, DeciderFacts(ADA))
    assert not is_approver(policy, DeciderFacts(PROGRAM))
    by_operator = Policy(approvers=("operator:ada",), same_person=(("operator:ada", "U2"),))
    assert is_approver(by_operator, DeciderFacts(BOSS))
    named_program = Policy(approvers=(PROGRAM.ref,), same_person=(("U2", PROGRAM.ref),))
    assert not is_approver(named_program, DeciderFacts(BOSS))
    assert not is_approver(replace(policy, never_approve=("operator:ada",)), DeciderFacts(BOSS))


def test_a_person_with_two_names_is_mentioned_once_by_the_name_in_slack() -> None:
    policy = Policy(approvers=("operator:ada", "U2", "U3"), same_person=(("U2", "operator:ada"),))
    assert mentioned_approvers(policy, ANYBODY) == ("U2", "U3")
    hidden = replace(policy, may_approve_not_pinged=("U2",))
    assert mentioned_approvers(hidden, ANYBODY) == ("operator:ada", "U3")


def test_two_names_linked_after_both_approved_are_one_approval() -> None:
    three = ApprovalPlan(required=3, rule="", confirm_amount=False, needs_override=False)
    policy = replace(POLICY, approvers=("U2", "U4"), same_person=(("U2", "operator:ada"),))
    fourth = DeciderFacts(Actor(ActorKind.SLACK, "U4", "T1"))
    said = judge(who=fourth, policy=policy, needed=three, approvals=(BOSS.ref, ADA.ref))
    assert (said.code, said.sentence) == ("first_of_two", "You approved the request. It needs 1 more approval.")
