"""Describe the policy's limit on hours and its approval tiers, as they are stored with each approval."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from bot.rules.approvals.approvers import is_slack_group, members, named, person_keys
from bot.rules.policy import tiers
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApprovalTier


def policy_limits(policy: Policy) -> dict[str, Any]:
    """Return the limit on hours and the tiers as JSON, so that an audit needs no policy of that time."""
    return {"max_hours": str(policy.max_hours), "tiers": [_tier(policy, tier) for tier in policy.approval_tiers]}


def _tier(policy: Policy, tier: ApprovalTier) -> dict[str, Any]:
    """Return one tier. `only_amounts` is false where GPUs or a team decide, too, whether a spend belongs to it."""
    return {
        "name": tier.name,
        "approvals": tier.approvals,
        "above_usd": _text(tier.above_usd),
        "above_hours": _text(tier.above_hours),
        "only_amounts": tier.above_gpus is None and not tier.gpus and not tier.team,
        "people": _people(policy, tier),
    }


def _people(policy: Policy, tier: ApprovalTier) -> list[str] | None:
    """Return everybody who may approve in a tier, once it escalated too; None where Slack knows who is in a group."""
    groups = (tiers.group_of(tier), *tiers.chain(tier, policy.escalate_to))
    names = {*policy.may_approve_not_pinged, *(name for group in groups for name in members(policy, group))}
    if any(is_slack_group(name) for name in names):
        return None
    return sorted({key for name in names for key in _keys(policy, name)})


def _keys(policy: Policy, name: str) -> tuple[str, ...]:
    try:
        return person_keys(policy, named(name))
    except ValueError:  # A name that is no reference names nobody.
        return ()


def _text(number: Decimal | None) -> str | None:
    return None if number is None else str(number)
