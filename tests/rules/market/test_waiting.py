"""The limits of a request that waits, when it looks again, and what all that wait may match."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.market.waiting import (
    JITTER,
    LOOK_S,
    BadWait,
    limited,
    limits_of,
    most_usd,
    next_look,
    together,
)
from bot.rules.policy.policy import Policy
from providers.gpus.constraint import GpuConstraint
from tests.rules.builders import NOW, job

POLICY = Policy()
H100 = GpuConstraint(("H100-SXM",), 8, 8)


def test_the_limits_are_those_that_were_said() -> None:
    asked = job("6", H100, max_price_usd_h=Decimal(16), budget_cap_usd=Decimal(90), wait=True, wait_until="3h")
    found = limits_of(asked, POLICY, NOW)
    assert (found.from_at, found.until) == (NOW, NOW + timedelta(hours=3))
    assert (found.price_usd_h, found.total_usd, found.hours) == (Decimal(16), Decimal(90), Decimal(6))
    assert found.gpu == H100


def test_the_total_follows_from_the_price_where_none_was_said() -> None:
    asked = job("6", H100, max_price_usd_h=Decimal(16), wait=True)
    # 6 hours are a quarter of the window, so the chance of a loss is 1 - 0.95 ^ (1 / 4) = 1.274 %.
    assert most_usd(asked, POLICY) == Decimal("126.03")
    assert limited(asked, POLICY).budget_cap_usd == Decimal("126.03")
    assert most_usd(job("6", H100, wait=True), POLICY) is None


@pytest.mark.parametrize(
    ("hours", "spot", "total"),
    [
        ("24", SpotPolicy.NO, "518.40"),
        ("72", SpotPolicy.NO, "1661.91"),
        ("24", SpotPolicy.YES, "576.00"),
        ("24", SpotPolicy.ANY, "576.00"),
    ],
)
def test_a_longer_or_a_spot_rental_is_lost_more_often(hours: str, spot: SpotPolicy, total: str) -> None:
    asked = job(hours, H100, max_price_usd_h=Decimal(16), wait=True, spot=spot)
    assert most_usd(asked, POLICY) == Decimal(total)


def test_the_chance_of_a_loss_follows_the_window_of_the_policy() -> None:
    asked = job("24", H100, max_price_usd_h=Decimal(16), wait=True)
    assert most_usd(asked, Policy(loss_window_h=Decimal(48))) == Decimal("508.93")
    sure = Policy(assumed_reliability=Decimal("0.05"), spot_interruption=Decimal("0.5"))
    assert most_usd(replace(asked, spot=SpotPolicy.YES), sure) == Decimal("879.36")


def test_without_a_time_it_waits_a_day_and_never_longer_than_the_policy_says() -> None:
    assert limits_of(job(wait=True), POLICY, NOW).until == NOW + timedelta(hours=24)
    assert limits_of(job(wait=True), Policy(max_wait_hours=Decimal(5)), NOW).until == NOW + timedelta(hours=5)
    later = limits_of(job(start_at="4h"), Policy(max_wait_hours=Decimal(5)), NOW)
    assert (later.from_at, later.until) == (NOW + timedelta(hours=4), NOW + timedelta(hours=5))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"start_at": "2020-01-01"}, "at=2020-01-01 has passed. Name a later moment, such as at=20:00."),
        ({"wait_until": "2020-01-01"}, "until=2020-01-01 is before its start. Name a later moment, such as until=6h."),
        ({"wait_until": "200h"}, "A request waits for 168 hours at most. Name an earlier moment."),
        ({"start_at": "200h"}, "A request waits for 168 hours at most. Name an earlier moment."),
    ],
)
def test_a_time_that_cannot_be_waited_for_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadWait) as found:
        limits_of(job(wait=True, **changes), POLICY, NOW)
    assert str(found.value) == sentence


@given(name=st.text(max_size=20), left_s=st.integers(1, 10**6))
def test_the_market_is_looked_at_every_minute_and_never_after_the_end(name: str, left_s: int) -> None:
    until = NOW + timedelta(seconds=left_s)
    at = next_look(name, NOW, until)
    assert NOW < at <= until
    assert at == until or LOOK_S * (1 - JITTER) <= (at - NOW).total_seconds() <= LOOK_S == 60


def test_one_market_holds_every_offer_that_could_fit_any_of_them() -> None:
    first = job("6", H100, disk_gb=200, candidates=("vast",))
    second = job("2", GpuConstraint(("RTX4090",), 1, 2), disk_gb=50, candidates=("runpod", "vast"))
    both = together([first, second])
    assert both.gpu == GpuConstraint(("H100-SXM", "RTX4090"), 1, 8)
    assert (both.disk_gb, both.candidates, both.spot) == (50, ("runpod", "vast"), SpotPolicy.NO)
    third = job("2", GpuConstraint((), 1, 1), spot=SpotPolicy.YES)
    every = together([first, second, third])
    assert (every.gpu.names, every.candidates, every.spot) == ((), (), SpotPolicy.ANY)
