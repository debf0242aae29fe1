"""Plan the approval that a spend needs, by what its run may cost in all after this decision.

A run may be requested at once or in parts: extended, moved, asked again from its checkpoint. Every decision on it adds
what was approved before, so that the parts need the approvers of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from bot.rules.approvals.approvers import ANYBODY
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup, group_of
from bot.rules.pricing import hours_cap
from bot.rules.values.phrases import hour_limit, hours, plural, usd
from ledger.kernel.states import RequestState

_ZERO: Final = Decimal(0)


@dataclass(frozen=True, slots=True)
class Authority:
    """Hold what a run may spend: dollars at worst, dollars as expected, and hours."""

    worst_usd: Decimal = _ZERO
    expected_usd: Decimal = _ZERO
    hours: Decimal = _ZERO

    def __add__(self, other: Authority) -> Authority:
        return Authority(
            self.worst_usd + other.worst_usd, self.expected_usd + other.expected_usd, self.hours + other.hours
        )


NOTHING: Final = Authority()


@dataclass(frozen=True, slots=True)
class EarlierAuthority:
    """Hold what a run may spend under earlier approvals: in the session that is decided on, and in its other ones."""

    session: Authority = NOTHING
    others: Authority = NOTHING

    @property
    def whole(self) -> Authority:
        """Return both together."""
        return self.session + self.others

    def before(self, *, is_figure: bool) -> Authority:
        """Return what counts before a spend; a figure about the whole session includes what was approved for it."""
        return self.others if is_figure else self.whole

    def spend(self, more: Authority, *, is_figure: bool) -> Authority:
        """Return the spend that is decided on.

        Who confirms a figure about the whole session adds nothing: at worst it costs what was approved for it.
        """
        return replace(more, worst_usd=max(more.worst_usd, self.session.worst_usd)) if is_figure else more


@dataclass(frozen=True, slots=True)
class ApprovalPlan:
    """Say how many approvers a spend needs and which rule says so. `required` 0 is the policy's auto-approval."""

    required: int
    rule: str
    confirm_amount: bool
    needs_override: bool


def plan(
    policy: Policy,
    spend: Authority,
    earlier: Authority = NOTHING,
    override_state: RequestState | None = None,
    mandate: ApproverGroup = ANYBODY,
) -> ApprovalPlan:
    """Plan the approval that a spend needs, on top of what was approved `earlier` for the same run.

    `override_state` is the state of its override request, None when there is none. Tiers and the number of approvers
    look at the worst case; the typed amount at the expected total. What needs a typed amount, or more hours than the
    cap, or belongs to a tier, is never approved automatically.
    """
    whole = spend + earlier
    confirm = whole.expected_usd > policy.confirm_above_usd
    over_hours = hours_cap.is_above(policy, whole.hours)
    needs_override = over_hours and override_state is not RequestState.APPROVED
    two_above, auto_below = policy.two_approvers_above_usd, policy.auto_approve_below_usd
    both = two_above is not None and whole.worst_usd > two_above
    in_all = " in all" if earlier.worst_usd > 0 else ""
    if mandate.tier is not None:
        required = max(mandate.tier.approvals, 2 if both else 1)
        rule = _tiered(mandate, required)
    elif two_above is not None and both:
        most = f"up to {usd(whole.worst_usd)}{in_all}"
        required, rule = 2, f"Needs 2 approvals, because {most} is above {usd(two_above)}."
    elif auto_below is not None and whole.worst_usd < auto_below and not confirm and not over_hours:
        most = f"at most {usd(whole.worst_usd)}{in_all}"
        required, rule = 0, f"Approved by the policy, because {most} is below {usd(auto_below)}."
    else:
        required, rule = 1, "Needs 1 approval."
    if confirm:
        rule += f" Above {usd(policy.confirm_above_usd)} the approver types the amount."
    if needs_override:
        cap, limit = hours(policy.max_hours), hour_limit(policy.max_hours)
        rule += f" {hours(whole.hours)} is above the limit of {cap}: approving includes the {limit} override."
    return ApprovalPlan(required=required, rule=rule, confirm_amount=confirm, needs_override=needs_override)


def _tiered(mandate: ApproverGroup, required: int) -> str:
    """Write the rule of a tier: how many approvals of which group it needs, and why."""
    tier = mandate.tier
    why = f", because {mandate.because}" if mandate.because else ""
    return f"Tier {tier.name if tier else ''}: needs {plural(required, 'approval')} from {group_of(tier)}{why}."
