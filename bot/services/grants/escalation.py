"""Schedule the reminders and escalations of an undecided request, and remind its approvers of new offers."""

from __future__ import annotations

from datetime import datetime

from bot.rules.approvals.reminders import next_look
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup, chain, next_step
from ledger.core import Tx, announce
from ledger.kernel.states import NotificationKind
from ledger.models import Request


def next_due(
    policy: Policy, mandate: ApproverGroup, opened_at: datetime, expires_at: datetime, now: datetime
) -> datetime:
    """Return when an undecided request is due again: a reminder, its next approver group, or its expiry."""
    further = len(chain(mandate.tier, policy.escalate_to))
    onwards = next_step(further, opened_at, now, policy.escalate_after_s)
    due_at = next_look(opened_at, expires_at, now, policy.remind_after_s)
    return due_at if onwards is None else min(due_at, onwards)


async def remind_again(tx: Tx, request: Request, now: datetime) -> None:
    """Remind the approvers of a request that is not the one they saw, in a new message: reminder 0 of its quote.

    Slack notifies nobody of an edited message, and the approvers believe that their decision is done.
    """
    subject = f"{request.id}/{request.quote_version}.0"
    kind = NotificationKind.REQUEST_REMINDER
    await announce(tx, now, kind, subject, destination=request.channel)
