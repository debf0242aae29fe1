"""What the simulation of a run is said as."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from bot.rules.market.estimate import estimate, run_bill
from bot.rules.market.outlook import CurvePoint, RunOutlook, chances_said, percent, points_said, range_said, speed_said
from bot.rules.market.parts import boot_of, chance_in, fetching_h, scenarios
from bot.rules.market.traffic import traffic
from bot.rules.sizing.interruptions import Checkpointing, loss
from bot.rules.sizing.run_time import RunTime
from bot.rules.sizing.simulation import RunLimits, RunTimes, simulate
from bot.rules.sizing.start_times import NO_START, Losses, StartTimes
from providers.contract import Offer
from tests.rules.builders import CLOUDS
from tests.rules.market.test_run_cost_properties import POLICY, WORDS, costs, h100, run, wanted

#: What the sessions of a slow cloud could show.
SLOW_START = StartTimes(Decimal(700), Decimal(900), Decimal(4000), Losses(3, 200.0), Losses(9, 100.0), 12, ("Said.",))
FOUND = RunOutlook(Decimal(4), Decimal("8.5"), Decimal("10.2"), Decimal("21.75"), Decimal("0.912"))


def test_the_range_is_said_as_hours_and_dollars() -> None:
    assert range_said(FOUND) == "Four of five runs take 4 h to 8 h 30 min and cost $10.20 to $21.75."


def test_three_points_of_the_curve_are_said() -> None:
    curve = tuple(
        CurvePoint(Decimal(share), Decimal(hours), Decimal(dollars))
        for share, hours, dollars in (
            ("0.1", "4", "10.2"),
            ("0.2", "5", "11"),
            ("0.5", "6", "14"),
            ("0.9", "8.5", "21"),
        )
    )
    assert points_said(replace(FOUND, curve=curve)) == (
        "Of all runs are done: 10% by 4 h and $10.20, 50% by 6 h and $14.00, 90% by 8 h 30 min and $21.00."
    )
    assert points_said(FOUND) == ""


def test_the_curve_rises_through_the_range_of_the_simulation() -> None:
    seen = costs(h100(), *WORDS).outlook
    assert seen is not None
    at = {one.share: one for one in seen.curve}
    assert (at[Decimal("0.1")].hours, at[Decimal("0.9")].hours) == (seen.hours_low, seen.hours_high)
    assert (at[Decimal("0.1")].usd, at[Decimal("0.9")].usd) == (seen.usd_low, seen.usd_high)
    assert [one.hours for one in seen.curve] == sorted(one.hours for one in seen.curve)
    assert [one.usd for one in seen.curve] == sorted(one.usd for one in seen.curve)


def test_chances_are_said_for_what_was_named() -> None:
    assert chances_said(FOUND) == ""
    assert chances_said(replace(FOUND, done=Decimal("0.634"))) == "Chances: 63% done by the goal."
    both = replace(FOUND, done=Decimal("0.634"), within=Decimal("0.9951"))
    assert chances_said(both) == "Chances: 63% done by the goal, above 99% within the budget."


def test_goodput_stands_beside_the_use_of_the_gpus() -> None:
    assert speed_said(FOUND) == "The run advances in 91% of its time (goodput)."
    assert speed_said(replace(FOUND, utilisation=Decimal("0.38"))).endswith(
        "(goodput), which uses 38% of the GPUs' peak rate."
    )


@pytest.mark.parametrize(
    ("chance", "said"), [("0", "below 1%"), ("0.01", "1%"), ("0.5", "50%"), ("0.99", "99%"), ("1", "above 99%")]
)
def test_no_forecast_is_sure(chance: str, said: str) -> None:
    assert percent(Decimal(chance)) == said


def test_a_missed_goal_is_known_in_hours() -> None:
    slow = h100(download_mbps=Decimal(100), upload_mbps=Decimal(100))
    goal = int(run().hours.expected * 60) + 3
    for made_of, words in ((h100(), ("goal=30m",)), (slow, (f"goal={goal}m", "dataset=50GB"))):
        found = costs(made_of, *WORDS, *words)
        named = round(Decimal(words[0][5:-1]) / 60, 6)
        # The wall clock counts: what is fetched, checkpoints and losses make a run late as well.
        assert found.late_hours == found.hours - named > 0
    assert costs(h100(), *WORDS, "goal=1000h").late_hours == 0
    assert costs(h100(), *WORDS).late_hours == 0


@pytest.mark.parametrize("cloud", ["vast", "runpod"])
@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("start", [NO_START, SLOW_START])
def test_the_expected_total_is_the_mean_of_the_simulation(cloud: str, spot: bool, start: StartTimes) -> None:
    words = ("model=1B", "tokens=40B", "seq=2048", "batch=512", "dataset=300GB", "goal=40h", "checkpoint-every=30m")
    sold = h100(
        cloud=cloud,
        spot=spot,
        storage_usd_h=Decimal("0.2"),
        egress_usd_gb=Decimal("0.01"),
        ingress_usd_gb=Decimal("0.02"),
        upload_mbps=Decimal(900),
        download_mbps=Decimal(700),
    )
    time = replace(run(*words), start=start)
    found = estimate(sold, wanted(*words, budget_cap_usd=Decimal(600)), POLICY, CLOUDS[cloud], time)
    (likely, _) = scenarios(wanted(*words), POLICY, CLOUDS[cloud], time)
    assert likely.traffic is not None
    chance = chance_in(sold, likely, POLICY)
    how = time_of_losses(time, sold)
    assert time.throughput is not None
    assert how.every_h is not None
    times = RunTimes(
        work_h=float(time.hours.median),
        sigma=time.throughput.sigma,
        losses_per_h=float(loss(chance, how).rate_h),
        interval_h=float(how.every_h),
        write_h=float(how.write_h),
        restart_h=float(how.restart_h),
        before_h=float(likely.traffic.boot_h + likely.traffic.ready_h + fetching_h(sold, likely)),
    )
    bill = run_bill(sold, chance, likely, CLOUDS[cloud].billing)
    simulated = simulate(times, bill, RunLimits(1e9, None, 40, 600))
    assert simulated.mean_usd == pytest.approx(float(found.expected_usd), rel=2e-3)
    assert simulated.hours == pytest.approx(float(found.hours), rel=2e-3)
    seen = found.outlook
    assert seen is not None
    assert (float(seen.done or 0), float(seen.within or 0)) == pytest.approx(
        (simulated.done, simulated.within), abs=1e-3
    )
    assert 0 < (seen.done or 0) < 1
    assert 0 < (seen.within or 0) < 1
    assert 0 < (seen.utilisation or 0) < seen.goodput < 1


def time_of_losses(time: RunTime, sold: Offer) -> Checkpointing:
    return traffic(time, boot_of(time, CLOUDS[sold.cloud]), POLICY).checkpointing(sold)


@pytest.mark.parametrize("cloud", ["vast", "runpod"])
def test_what_own_sessions_showed_changes_hours_and_cost_and_is_said(cloud: str) -> None:
    sold = h100(cloud=cloud)
    plain = estimate(sold, wanted(*WORDS), POLICY, CLOUDS[cloud], run())
    slow = estimate(sold, wanted(*WORDS), POLICY, CLOUDS[cloud], replace(run(), start=SLOW_START))
    assert slow.hours > plain.hours + Decimal(1400 - CLOUDS[cloud].boot_expected_s) / 3600
    assert slow.expected_usd > plain.expected_usd
    assert any(one.startswith("Starting takes about 700 s (from 12 sessions of yours)") for one in slow.assumptions)
    assert "Your on-demand sessions at this cloud lost 3 machines in 200 hours." in slow.assumptions
    assert "Said." in slow.assumptions
    assert not any("of yours" in one for one in plain.assumptions)
