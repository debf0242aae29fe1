"""What is said of a request that waits."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from bot.rules.jobs.waiting_text import waits_for
from providers.gpus.constraint import GpuConstraint
from tests.rules.builders import NOW, job


def test_it_says_for_what_it_waits_and_until_when() -> None:
    until = NOW + timedelta(hours=6)
    wanted = job("6", GpuConstraint(("RTX4090",), 2, 2), max_price_usd_h=Decimal(2), wait=True)
    assert waits_for(wanted, NOW, until) == f"waits for 2× RTX4090 at $2.00/h or less until {until:%Y-%m-%d %H:%M} UTC"
    later = job("6", GpuConstraint(("RTX4090",), 1, 1), start_at="1h")
    assert waits_for(later, NOW, until, lambda at: f"{at:%H}") == f"waits for 1× RTX4090 from {NOW:%H} until {until:%H}"
