"""Schedule the reminders and escalations of an undecided request."""

from __future__ import annotations

from datetime import datetime

from bot.rules.approvals.reminders import next_look
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup, chain, next_step


def next_due(
    policy: Policy, mandate: ApproverGroup, opened_at: datetime, expires_at: datetime, now: datetime
) -> datetime:
    """Return when an undecided request is due again: a reminder, its next approver group, or its expiry."""
    further = len(chain(mandate.tier, policy.escalate_to))
    onwards = next_step(further, opened_at, now, policy.escalate_after_s)
    due_at = next_look(opened_at, expires_at, now, policy.remind_after_s)
    return due_at if onwards is None else min(due_at, onwards)
