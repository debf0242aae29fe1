"""What own sessions say about starts and losses: pooled with what is assumed, and said where it counted."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from bot.rules.sizing.start_times import (
    LOSS_PRIOR_H,
    NO_START,
    NO_TIMES,
    PRIOR_SESSIONS,
    STEP_S,
    WAIT_S,
    WARM_UP_S,
    InstanceHistory,
    Losses,
    StartTimes,
    own_times,
)

DAY_H = Decimal(24)


def booted(seconds: float, gpu: str = "RTX4090", count: int = 1) -> list[InstanceHistory]:
    return [InstanceHistory("vast", gpu, spot=False, boot_s=seconds)] * count


def test_a_boot_is_pulled_from_the_assumed_one_to_those_of_the_cloud_and_then_of_the_gpu() -> None:
    assert NO_TIMES.boot("vast", "RTX4090", 120) == (120, 0)
    one = own_times(booted(60))
    at_cloud = (PRIOR_SESSIONS * 120 + 60) / (PRIOR_SESSIONS + 1)
    assert one.boot("vast", "H100-SXM", 120) == (at_cloud, 1)
    assert one.boot("vast", "RTX4090", 120)[0] == pytest.approx((PRIOR_SESSIONS * at_cloud + 60) / 6)
    assert one.boot("runpod", "RTX4090", 90) == (90, 0)
    many = own_times([*booted(60, count=200), *booted(600, "H100-SXM", 200)])
    assert many.boot("vast", "RTX4090", 120)[0] == pytest.approx(60, abs=8)
    assert many.boot("vast", "H100-SXM", 120)[0] == pytest.approx(600, abs=8)


def test_without_sessions_the_assumptions_are_named() -> None:
    found = NO_TIMES.start("vast", "RTX4090", 120, ("packages", "unheard of"), trains=True)
    assert (found.boot_s, found.boots) == (None, 0)
    assert found.ready_s == Decimal(str(STEP_S["packages"])) + 30 + Decimal(str(WARM_UP_S))
    assert found.wait_s == Decimal(str(WAIT_S))
    assert found.sentences(spot=False) == (
        "Setting up takes about 60 s (assumed).",
        "Compiling and warming up take about 60 s at each start (assumed).",
        "After a loss, a replacement is created within about 300 s (assumed).",
    )
    by_hand = NO_TIMES.start("vast", "RTX4090", 120, (), trains=False)
    assert (by_hand.ready_s, len(by_hand.said)) == (Decimal(0), 1)


def test_what_sessions_showed_counts_and_is_said() -> None:
    past = [
        InstanceHistory("vast", "RTX4090", spot=False, boot_s=94, hours=100, steps=(("packages", 90.0),)),
        InstanceHistory("vast", "RTX4090", spot=False, hours=20, lost=True),
        InstanceHistory("vast", "RTX4090", spot=True, hours=1, lost=True, wait_s=900),
    ]
    found = own_times(past).start("vast", "RTX4090", 120, ("packages",), trains=False)
    assert found.boots == 1
    assert found.boot_s is not None
    assert 94 < found.boot_s < 120
    assert found.ready_s == (PRIOR_SESSIONS * 30 + 90) / Decimal(PRIOR_SESSIONS + 1)
    assert found.wait_s == (PRIOR_SESSIONS * 300 + 900) / Decimal(PRIOR_SESSIONS + 1)
    assert found.losses == Losses(1, 120)
    assert found.spot_losses == Losses(1, 1)
    assert found.sentences(spot=False) == (
        "Setting up takes about 40 s (from 1 session of yours).",
        "After a loss, a replacement is created within about 400 s (from 1 session of yours).",
        "Your on-demand sessions at this cloud lost 1 machine in 120 hours.",
    )
    assert found.sentences(spot=True)[-1] == "Your spot sessions at this cloud lost 1 machine in 1 hour."


def test_losses_pull_the_chance_and_nothing_seen_leaves_it() -> None:
    assumed = Decimal("0.05")
    assert Losses().chance(assumed, DAY_H) == assumed
    rate = -math.log1p(-0.05) / 24
    lost = Losses(5, 300.0).chance(assumed, DAY_H)
    pooled = (rate * LOSS_PRIOR_H + 5) / (LOSS_PRIOR_H + 300)
    assert float(lost) == pytest.approx(1 - math.exp(-pooled * 24), rel=1e-12)
    assert Losses(0, 5000.0).chance(assumed, DAY_H) < assumed / 8
    assert Losses(0, 1.0).chance(Decimal(1), DAY_H) < 1


def test_no_start_adds_nothing() -> None:
    assert StartTimes() == NO_START
    assert (NO_START.ready_s, NO_START.wait_s) == (Decimal(0), Decimal(0))
    assert NO_START.boot_s is None
    assert NO_START.sentences(spot=True) == ()
