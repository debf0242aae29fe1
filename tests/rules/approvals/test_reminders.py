"""Reminders come after a pause that doubles, and never later than the expiry."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.rules.approvals.reminders import next_look, reminders_due
from tests.support.clock import START


@pytest.mark.parametrize(
    ("waited_s", "number"), [(0, 0), (899, 0), (900, 1), (2699, 1), (2700, 2), (6299, 2), (6300, 3), (86400, 6)]
)
def test_the_pause_doubles_after_each_reminder(waited_s: float, number: int) -> None:
    assert reminders_due(START, START + timedelta(seconds=waited_s), 900) == number


@pytest.mark.parametrize(("waited_s", "next_s"), [(0, 900), (900, 2700), (2000, 2700), (2700, 6300), (6300, 7200)])
def test_the_next_look_is_the_next_reminder_or_the_expiry(waited_s: float, next_s: float) -> None:
    expires_at = START + timedelta(seconds=7200)
    assert next_look(START, expires_at, START + timedelta(seconds=waited_s), 900) == START + timedelta(seconds=next_s)


def test_a_pause_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        reminders_due(START, START, 0)
