"""The simulation of a run beside a plain one that draws every rate and every loss."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.sizing.interruptions import Checkpointing, loss, lost_time
from bot.rules.sizing.simulation import RunBill, RunLimits, RunTimes, simulate, wall_clock

RUNS = 8_000
SEED = 60

TIMES = RunTimes(work_h=20.0, sigma=0.3, losses_per_h=0.01, interval_h=1.0, write_h=0.05, restart_h=0.3, before_h=0.5)
BILL = RunBill(usd_h=2.0, work_usd_h=0.1, once_usd=3.0)
LIMITS = RunLimits(cap_usd=75.0, goal_h=24.0, budget_usd=50.0)


def one_run(run: RunTimes, draw: random.Random) -> tuple[float, float]:
    """Hours of work and of wall clock of one run, step by step."""
    work = run.work_h * math.exp(draw.gauss(0, run.sigma))
    wall, left = run.before_h, work
    if not run.interval_h:
        reached = draw.expovariate(run.losses_per_h)
        while reached < work:
            wall += run.restart_h
            reached += draw.expovariate(run.losses_per_h)
        return work, wall + work
    while left > 0:
        part = min(run.interval_h, left)
        needed = part + run.write_h * part / run.interval_h
        lost = draw.expovariate(run.losses_per_h) if run.losses_per_h else math.inf
        if lost < needed:
            wall += lost + run.restart_h
        else:
            wall += needed
            left -= part
    return work, wall


def share(values: list[float], below: float) -> float:
    return sum(one <= below for one in values) / len(values)


def at(values: list[float], quantile: float) -> float:
    return sorted(values)[int(quantile * len(values))]


@pytest.mark.parametrize(
    ("change", "step_h"),
    [
        ({}, 0.0),
        ({"sigma": 0.05}, 1.0),
        ({"losses_per_h": 0.0}, 0.0),
        ({"losses_per_h": 0.0149, "restart_h": 1.0}, 0.0),
        ({"losses_per_h": 0.19, "write_h": 0.2, "interval_h": 1.5}, 0.0),
        ({"losses_per_h": 0.8, "work_h": 150.0}, 0.0),
        ({"interval_h": 0.0, "write_h": 0.0, "losses_per_h": 0.05}, 1 / 60),
        ({"work_h": 0.4, "sigma": 0.6, "interval_h": 5.0}, 0.25),
        ({"losses_per_h": 0.02, "sigma": 0.0001}, 0.0),
    ],
)
def test_a_plain_simulation_with_random_numbers_finds_the_same(change: dict[str, float], step_h: float) -> None:
    run = replace(TIMES, **change)
    bill = replace(BILL, step_h=step_h, unbilled_h=0.1)
    draw = random.Random(SEED)
    runs = [one_run(run, draw) for _ in range(RUNS)]
    walls = [wall for _, wall in runs]
    billed = [math.ceil((wall - 0.1) / step_h) * step_h if step_h else wall - 0.1 for wall in walls]
    paid = [3.0 + 0.1 * work + 2.0 * hours for (work, _), hours in zip(runs, billed, strict=True)]
    cap, budget, goal = at(paid, 0.97), at(paid, 0.6) + 0.003, at(walls, 0.45) + 0.001
    found = simulate(run, bill, RunLimits(cap, None, goal, budget))
    assert found.hours == pytest.approx(sum(walls) / RUNS, rel=0.02)
    assert found.mean_usd == pytest.approx(sum(paid) / RUNS, rel=0.02)
    assert (found.hours_low, found.hours_high) == pytest.approx((at(walls, 0.1), at(walls, 0.9)), rel=0.03)
    assert (found.usd_low, found.usd_high) == pytest.approx((at(paid, 0.1), at(paid, 0.9)), rel=0.03)
    assert found.goodput == pytest.approx(sum(work for work, _ in runs) / sum(walls), rel=0.02)
    if run.sigma > 0.01:
        assert found.done == pytest.approx(share(walls, goal), abs=0.03)
        assert found.within == pytest.approx(share(paid, budget), abs=0.06 if step_h else 0.03)


def test_by_hand_without_doubt_and_without_losses() -> None:
    """10 h of work with 10 checkpoints of 6 minutes and half an hour before: 11.5 h, of which 0.5 h are free."""
    sure = replace(TIMES, work_h=10.0, sigma=0.0, losses_per_h=0.0, write_h=0.1)
    bill = RunBill(usd_h=2.0, work_usd_h=0.5, once_usd=1.0, unbilled_h=0.5, step_h=1.0, minimum_h=4.0)
    found = simulate(sure, bill, RunLimits(100.0, 12.0))
    assert (found.hours, found.hours_low, found.hours_high) == pytest.approx((11.5, 11.5, 11.5))
    assert (found.mean_usd, found.usd_low, found.usd_high) == pytest.approx((28.0, 28.0, 28.0))
    assert found.goodput == pytest.approx(10 / 11.5)
    assert found.done == pytest.approx(1)
    assert found.within is None
    short = simulate(replace(sure, work_h=1.0), bill, RunLimits(100.0))
    assert short.mean_usd == pytest.approx(1 + 0.5 + 2 * 4)


def test_a_bill_ends_at_the_cap_and_the_mean_is_that_of_the_finished_run() -> None:
    free, tight = (simulate(TIMES, BILL, replace(LIMITS, cap_usd=cap)) for cap in (1e9, 50.0))
    assert tight.mean_usd == free.mean_usd
    assert tight.usd_high == 50.0 < free.usd_high
    assert tight.within == pytest.approx(1)
    assert tight.done < 1
    assert free.within is not None
    assert free.within < 1


def test_a_run_is_done_only_before_its_rental_ends() -> None:
    ends = [simulate(TIMES, BILL, RunLimits(1e9, most_h, goal_h)).done for most_h, goal_h in ((None, 24), (20, 24))]
    assert ends[0] > ends[1] == simulate(TIMES, BILL, RunLimits(1e9, 20.0)).done


def test_the_same_run_is_computed_once_and_always_the_same() -> None:
    assert wall_clock(TIMES) is wall_clock(replace(TIMES))
    assert simulate(TIMES, BILL, LIMITS) == simulate(TIMES, BILL, LIMITS)
    assert wall_clock(TIMES).chance.sum() == pytest.approx(1)


@pytest.mark.parametrize(("chance", "every"), [("0.05", None), ("0.3", "1.5"), ("0.9", "0.4"), ("0.000001", "2")])
def test_the_mean_is_the_work_with_the_share_that_the_ranking_counts(chance: str, every: str | None) -> None:
    how = Checkpointing(Decimal("0.05"), Decimal("0.3"), None if every is None else Decimal(every))
    counted = loss(Decimal(chance), how)
    assert counted.interval_h is not None
    rate, interval = float(counted.rate_h), float(counted.interval_h)
    lost = lost_time(rate, interval, 0.05, 0.3)
    assert lost.losses_per_h * lost.mean_h + 0.05 / interval == pytest.approx(float(counted.share), rel=1e-3)
    found = simulate(replace(TIMES, losses_per_h=rate, interval_h=interval), BILL, LIMITS)
    mean_work = 20.0 * math.exp(0.3**2 / 2)
    assert found.hours == pytest.approx(0.5 + mean_work * (1 + float(counted.share)), rel=2e-3)


@given(
    pair=st.tuples(st.floats(0, 0.19), st.floats(0, 0.19)),
    interval=st.floats(0.1, 10),
    write=st.floats(0, 1),
)
def test_a_higher_hazard_never_takes_less_time(pair: tuple[float, float], interval: float, write: float) -> None:
    less, more = (
        simulate(replace(TIMES, losses_per_h=rate, interval_h=interval, write_h=write), BILL, LIMITS)
        for rate in sorted(pair)
    )
    assert more.hours >= less.hours * (1 - 1e-3)
    assert more.goodput <= less.goodput * (1 + 1e-3)
    assert 0 <= more.done <= 1.000001
    assert more.hours_low <= more.hours_high
