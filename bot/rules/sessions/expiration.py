"""Time the warnings before the end of a session, and say how much of it is left and what else ends it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.policy.policy import Policy
from bot.rules.pricing import hours_cap
from bot.rules.values.phrases import hours, plural
from ledger.kernel.end_reason import EndReason


def warnings(before_s: Collection[int], began_at: datetime, deadline: datetime) -> tuple[datetime, ...]:
    """Return when to warn of `deadline`, the earliest first. Warnings in the first half of the time are left out.

    A session of one hour is not warned one hour before its end: that would be when it begins.
    """
    half = (deadline - began_at) / 2
    return tuple(sorted(deadline - timedelta(seconds=s) for s in set(before_s) if timedelta(seconds=s) <= half))


def is_due(moments: Sequence[datetime], deadline: datetime, warned_at: datetime | None, now: datetime) -> bool:
    """Whether to warn now. Warnings that were missed while nothing ran become one; an end always has a warning."""
    if warned_at is None:
        return any(moment <= now for moment in (*moments, deadline))
    return any(warned_at < moment <= now for moment in moments)


def is_last(moments: Sequence[datetime], now: datetime) -> bool:
    """Whether a warning that is given now is the last one."""
    return all(moment <= now for moment in moments)


def next_look(moments: Sequence[datetime], deadline: datetime, now: datetime) -> datetime:
    """Return when the session needs attention again: its next warning, or its end."""
    return min((moment for moment in moments if moment > now), default=deadline)


def ended_by(
    hours_approved: Decimal, policy: Policy, *, spent: str, unconfirmed: bool, ahead: bool = False
) -> tuple[EndReason, str]:
    """Return the code and sentence of an approved end.

    `spent` is the amount that is used up before the hours, or empty. `ahead`: the end is still to come, so nothing of
    it is said as if it had happened.
    """
    end, used = ("end then", "will be used up then") if ahead else ("have ended", "is used up")
    code, said = EndReason.RESERVATION_OVER, f"The approved {hours(hours_approved)} {end}."
    if spent:
        code, said = EndReason.BUDGET_CAP, f"The approved amount of {spent} {used}."
    elif hours_cap.left(policy, hours_approved) <= 0:
        code = EndReason.HOURS_CAP
        # More hours than that have their override already.
        if not hours_cap.is_above(policy, hours_approved):
            said = f"{said} More than {hours(policy.max_hours)} needs an override."
    if unconfirmed:
        return EndReason.OVERSPEND_UNCONFIRMED, f"{said} Nobody approved its higher cost."
    return code, said


def left(deadline: datetime, now: datetime) -> str:
    """Write the countdown that every status shows: `1 h 12 min left`, `2 minutes left`, `ending now`."""
    minutes = -((now - deadline) // timedelta(minutes=1))
    if minutes <= 0:
        return "ending now"
    if minutes < 60:
        return f"{plural(minutes, 'minute')} left"
    return f"{minutes // 60} h {minutes % 60:02d} min left"


def termination_policy(before_s: Collection[int], *, can_end: bool, agent: str) -> str:
    """Say what ends a session, for every status. `can_end`: whether a call at its cloud does.

    `agent` is the sentence about the program on the machine that reports from it, or about its absence.
    """
    if not can_end:
        return "Its cloud can't end it: it runs until it finishes or reaches its timeout."
    before = [hours(Decimal(seconds) / 3600) for seconds in sorted(set(before_s), reverse=True) if seconds > 0]
    listed = " and ".join(filter(None, (", ".join(before[:-1]), before[-1]))) if before else "shortly"
    return f"It ends at its approved time or amount. Its owner gets a warning {listed} before. {agent}".strip()
