"""Which events were recorded late."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.rules.audit.event_order import is_late
from tests.support.clock import START


@pytest.mark.parametrize(
    ("after", "late"),
    [
        (timedelta(seconds=1), False),
        (timedelta(hours=1), False),
        (timedelta(hours=1, microseconds=1), True),
        (timedelta(hours=-3), False),
    ],
)
def test_more_than_an_hour_is_late(after: timedelta, late: bool) -> None:
    assert is_late(START, START + after) is late


def test_nothing_is_said_of_events_that_are_older_than_the_order() -> None:
    assert not is_late(START, None)
