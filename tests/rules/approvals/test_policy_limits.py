"""What an approval stores of the policy: the limit on hours, and each tier with everybody who may approve in it."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.approvals.policy_limits import policy_limits
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApprovalTier


def test_tiers_are_stored_with_the_people_of_all_their_groups_under_all_names() -> None:
    policy = Policy(
        approvers=("UBOB", "no reference: at all"),
        may_approve_not_pinged=("UEVE",),
        approval_groups={"finance": ("UCAROL",), "directors": ("UERIN",), "people": ("S0TEAM",)},
        same_person=(("UCAROL", "operator:carol"),),
        escalate_to=("directors",),
        approval_tiers=(
            ApprovalTier("large", "finance", 2, above_usd=Decimal(200), above_hours=Decimal("1.5")),
            ApprovalTier("h100", "", 1, gpus=("H100",), then=("finance",)),
            ApprovalTier("team", "people", 1, team="ml"),
        ),
        max_hours=Decimal(8),
    )
    limits = policy_limits(policy)
    large, h100, team = limits["tiers"]
    assert limits["max_hours"] == "8"
    assert large == {
        "name": "large",
        "approvals": 2,
        "above_usd": "200",
        "above_hours": "1.5",
        "only_amounts": True,
        "people": ["operator:carol", "slack:UCAROL", "slack:UERIN", "slack:UEVE"],
    }
    assert (h100["only_amounts"], h100["above_usd"]) == (False, None)
    assert h100["people"] == ["operator:carol", "slack:UBOB", "slack:UCAROL", "slack:UEVE"]
    # Only Slack knows who is in a user group.
    assert (team["only_amounts"], team["people"]) == (False, None)
