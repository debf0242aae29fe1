"""What is over for good is looked at no more, and what it cost still counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from providers.sandbox.timeline import BilledTime, Living

START = datetime(2026, 3, 2, tzinfo=UTC)


@dataclass
class Machine:
    begins: datetime
    ends: datetime
    meter: BilledTime = field(default_factory=BilledTime)


def is_over(machine: Machine, now: datetime) -> bool:
    return machine.ends <= now


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 300), st.integers(1, 9)), max_size=12))
def test_the_living_are_those_that_are_not_over_and_everything_counts(plan: list[tuple[int, int, int]]) -> None:
    everything: dict[int, Machine] = {}
    living = Living(everything, is_over, lambda machine, now: machine.meter.total_usd(now))
    for number, (begin, length, usd_h) in enumerate(sorted(plan)):
        now = START + timedelta(seconds=begin)
        machine = Machine(now, now + timedelta(seconds=length))
        machine.meter.start("gpu", now, Decimal(usd_h))
        machine.meter.stop("gpu", machine.ends)
        everything[number] = machine
        assert living.at(now) == [one for one in everything.values() if not is_over(one, now)]
        assert abs(living.spent_usd(now) - sum(one.meter.total_usd(now) for one in everything.values())) < Decimal(
            "1e-12"
        )
    end = START + timedelta(seconds=900)
    assert living.at(end) == []
    assert abs(living.spent_usd(end) - sum(one.meter.total_usd(end) for one in everything.values())) < Decimal("1e-12")
