"""Whether the approvals of a session are enough for a new owner, and how long an offer is open."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.rules.approvals.approvers import ANYBODY, DeciderFacts
from bot.rules.approvals.authority import ApprovalPlan
from bot.rules.policy.policy import Policy
from bot.rules.sessions.transfer import OFFERED_FOR, approved_for, expires
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import SYSTEM, Actor, ActorKind

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
BOB, CAROL, DAVE = (Actor(ActorKind.SLACK, name) for name in ("UBOB", "UCAROL", "UDAVE"))
POLICY = Policy(approvers=("UBOB", "UCAROL"))
ONE = ApprovalPlan(required=1, rule="Needs 1 approval.", confirm_amount=False, needs_override=False)


def test_an_offer_is_open_for_a_day_or_until_the_end() -> None:
    assert expires(NOW, None) == NOW + OFFERED_FOR
    assert expires(NOW, NOW + timedelta(hours=2)) == NOW + timedelta(hours=2)
    assert expires(NOW, NOW + timedelta(days=3)) == NOW + OFFERED_FOR
    assert expires(NOW, NOW - timedelta(hours=1)) == NOW


def test_approvals_count_when_their_approvers_may_approve_for_the_new_owner() -> None:
    bob, carol, policy = DeciderFacts(BOB), DeciderFacts(CAROL), DeciderFacts(SYSTEM)
    assert approved_for(POLICY, DAVE, [bob], ONE, ANYBODY, above_cap=False) is None
    two = replace(ONE, required=2, rule="Needs 2 approvals.")
    assert approved_for(POLICY, DAVE, [bob, carol], two, ANYBODY, above_cap=False) is None
    nobody = [DeciderFacts(Actor(ActorKind.SLACK, "UEVE"))]
    for votes, needed, has in (
        ([bob, bob], two, "It has 1 from"),
        ([policy], ONE, "none"),
        (nobody, ONE, "none"),
    ):
        refused = approved_for(POLICY, DAVE, votes, needed, ANYBODY, above_cap=False)
        assert refused is not None
        assert (refused.code, has in refused.sentence) == (ReplyCode.TRANSFER_NOT_APPROVED, True)


def test_nobody_takes_over_what_they_approved_themselves() -> None:
    votes = [DeciderFacts(CAROL)]
    refused = approved_for(POLICY, CAROL, votes, ONE, ANYBODY, above_cap=False)
    assert refused is not None
    assert "nobody may approve their own spend" in refused.sentence
    linked = replace(POLICY, same_person=(("UCAROL", "operator:carol"),))
    assert approved_for(linked, Actor(ActorKind.OPERATOR, "carol"), votes, ONE, ANYBODY, above_cap=False) is not None
    allowed = replace(POLICY, allow_self_approval=True)
    assert approved_for(allowed, CAROL, votes, ONE, ANYBODY, above_cap=False) is None
    assert approved_for(allowed, CAROL, votes, ONE, ANYBODY, above_cap=True) is not None
