"""The circuit breaker stops a pass that would hit too much of a fleet."""

from __future__ import annotations

import pytest

from bot.rules.instances.circuit_breaker import trips


@pytest.mark.parametrize(
    ("live", "destroys", "vanished", "said"),
    [
        (3, 3, 3, None),
        (4, 3, 1, None),
        (4, 4, 0, "would end 4 instances, more than 3 of 4"),
        (4, 0, 2, "2 of 4 running instances are missing"),
        (10, 3, 4, None),
        (10, 0, 5, "5 of 10 running instances are missing"),
        (100, 20, 0, None),
        (100, 21, 0, "would end 21 instances, more than 20 of 100"),
    ],
)
def test_a_pass(live: int, destroys: int, vanished: int, said: str | None) -> None:
    found = trips(live, destroys, vanished)
    assert found is None if said is None else said in (found or "")
