"""Count the billed hours of a session under all its approvals, for the 12-hour cap."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.rules.pricing import hours_cap
from ledger.core import Tx
from ledger.kernel.states import RequestState
from ledger.models import Request
from ledger.queries.lookups import lives_of


async def hours_before(tx: Tx, session_id: str, approval_id: str | None, now: datetime) -> Decimal:
    """Count the hours that clouds may have billed for a session under other approvals; without one, under all."""
    lives = [(until or now) - sent_at for of, sent_at, until in await lives_of(tx, session_id) if of != approval_id]
    return sum((Decimal(str(one.total_seconds())) / 3600 for one in lives), Decimal(0))


def covered_by(override: Request | None) -> Decimal:
    """Return the total hours that an override allows; zero before it is approved."""
    if override is None or override.state is not RequestState.APPROVED:
        return Decimal(0)
    job = job_of(override.job)
    return job.hours + job.already_hours


def state_of(override: Request | None, total_h: Decimal) -> RequestState | None:
    """Return the state of an override for so many hours in all; None if there is none or it allows fewer."""
    if override is None or (override.state is RequestState.APPROVED and total_h > covered_by(override)):
        return None
    return override.state


def longest_checkpoint_hold(policy: Policy, override: Request | None, run_h: Decimal, approved_h: Decimal) -> Decimal:
    """Return the longest checkpoint hold that needs no approval: the approved one, or one within the cap or override.

    `run_h` are the hours of the session without any hold, `approved_h` those of the approved option's hold.
    """
    return max(approved_h, hours_cap.left(policy, run_h, covered_by(override)))
