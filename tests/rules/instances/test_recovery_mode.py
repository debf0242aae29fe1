"""Which ends wait while the ledger is being recovered."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.rules.instances.recovery_mode import HOLD, recovery_notice, waits_until
from tests.support.clock import START

MINUTE = timedelta(minutes=1)
PATIENCE = timedelta(minutes=30)


@pytest.mark.parametrize(
    ("asked", "session_end", "deadline", "now", "held_for"),
    [
        (-1, None, None, 5, None),  # Ordered before anything was found: it was decided on what was known.
        (5, None, 60, 5, HOLD),  # Only a look has concluded it.
        (5, "asked", 60, 5, None),
        (5, "completed", None, 5, None),
        (60, "reservation_over", 60, 60, None),
        (1, "asked", -10, 1, None),
        (1, "hours_cap", -10, 1, HOLD),  # Overdue when it began: it may have been extended in what is lost.
        (1, "hours_cap", 0, 29.75, timedelta(seconds=15)),
        (1, "hours_cap", -10, 30, None),
        (1, "budget_cap", None, 1, None),
    ],
)
def test_what_waits(
    asked: int, session_end: str | None, deadline: int | None, now: float, held_for: timedelta | None
) -> None:
    at = START + now * MINUTE
    end = None if deadline is None else START + deadline * MINUTE
    until = waits_until(START + asked * MINUTE, session_end, end, START, at, PATIENCE)
    assert until == (None if held_for is None else at + held_for)


def test_it_says_what_waits_and_which_commands_end_it() -> None:
    assert recovery_notice(0) == ""
    assert "1 instance has our label" in recovery_notice(1)
    assert "2 instances have our label" in recovery_notice(2)
    for unknown in (1, 2):
        notice = recovery_notice(unknown)
        assert all(f"`gpu-shopper {one}`" in notice for one in ("orphans list", "adopt ID", "orphans condemn ID"))
