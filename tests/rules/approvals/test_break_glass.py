"""Break-glass: nobody by default, and a named person starts their own request only, with a reason, for little."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from bot.rules.approvals import break_glass
from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.approvals.decision import SLACK_OFF
from bot.rules.policy.policy import Policy
from bot.rules.policy.validation import validated
from ledger.kernel.actor import Actor, ActorKind

DAVE = DeciderFacts(Actor(ActorKind.SLACK, "UDAVE", "T1"))
ADA = DeciderFacts(Actor(ActorKind.OPERATOR, "ada"))
POLICY = Policy(break_glass=("UDAVE", "operator:ada", "consumer:atlas"))


@pytest.mark.parametrize(
    ("policy", "who", "own", "reason", "code"),
    [
        (Policy(), DAVE, True, "down", "no_break_glass"),
        (POLICY, DAVE, True, "down", "break_glass"),
        (POLICY, ADA, True, "down", "break_glass"),
        (POLICY, DeciderFacts(Actor(ActorKind.CONSUMER, "atlas")), True, "down", "no_break_glass"),
        (POLICY, DeciderFacts(Actor(ActorKind.SLACK, "UBOB", "T1")), True, "down", "no_break_glass"),
        (replace(POLICY, never_approve=("UDAVE",)), DAVE, True, "down", "no_break_glass"),
        (
            replace(POLICY, never_approve=("operator:dave",), same_person=(("UDAVE", "operator:dave"),)),
            DAVE,
            True,
            "down",
            "no_break_glass",
        ),
        (POLICY, replace(DAVE, is_guest=True), True, "down", "no_break_glass"),
        (POLICY, replace(DAVE, known=False), True, "down", "no_break_glass"),
        (replace(POLICY, allow_slack_decisions=False), DAVE, True, "down", SLACK_OFF.code),
        (replace(POLICY, allow_slack_decisions=False), ADA, True, "down", "break_glass"),
        (POLICY, DAVE, False, "down", "not_yours"),
        (POLICY, DAVE, True, "  ", "reason_needed"),
        (POLICY, DAVE, True, "x" * 501, "reason_too_long"),
    ],
)
def test_who_may(policy: Policy, who: DeciderFacts, own: bool, reason: str, code: str) -> None:
    assert break_glass.may_break_glass(policy, who, own=own, reason=reason).code == code


def test_it_is_for_little_and_everybody_who_decides_is_told() -> None:
    assert break_glass.fits(POLICY, Decimal(5), Decimal(5), Decimal(7)).allowed
    refused = break_glass.fits(POLICY, Decimal("5.01"), Decimal(5), Decimal(7))
    assert refused.code == "above_break_glass"
    assert "of $25.00 in 24 hours, $7.00 is left to you" in refused.sentence
    assert not break_glass.fits(POLICY, Decimal(0), Decimal(0), Decimal(0)).allowed
    assert [break_glass.left(POLICY, Decimal(taken)) for taken in (18, 26)] == [Decimal(7), Decimal(0)]
    assert break_glass.announcement("operator:ada", "vast:1", Decimal(2), Decimal(5), " down ").endswith("Reason: down")
    policy = Policy(
        approvers=("UBOB", "operator:ada"),
        may_approve_not_pinged=("UCEO",),
        budget_admins=("UBOB",),
        approval_groups={"finance": ("UFIN", "S0FIN")},
    )
    assert break_glass.audience(policy) == ("UBOB", "UCEO", "UFIN")
    linked = replace(policy, same_person=(("UADA", "operator:ada"),))
    assert break_glass.audience(linked) == ("UBOB", "UADA", "UCEO", "UFIN")


def test_its_time_is_inside_the_usual_one() -> None:
    with pytest.raises(ValueError, match="break_glass_hours"):
        validated(Policy(break_glass_hours=Decimal(13)))


@pytest.mark.parametrize(
    ("total", "allowed", "code"), [("12", "0", "ok"), ("12.1", "0", "override_first"), ("14", "14", "ok")]
)
def test_it_passes_no_cap_on_hours(total: str, allowed: str, code: str) -> None:
    assert break_glass.inside_hours(POLICY, Decimal(total), Decimal(allowed)).code == code
