"""Say how long a described run takes on one offer and what it costs, as ranges and chances.

The simulation is `bot.rules.sizing.simulation`; here its numbers get the units and the rounding of an estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from bot.rules.sizing.interruptions import Checkpointing, Loss
from bot.rules.sizing.run_time import RunTime
from bot.rules.sizing.simulation import CURVE, HIGH, LOW, RunBill, RunLimits, RunTimes, simulate
from bot.rules.values.phrases import about_hours, usd

_HUNDREDTH = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Hold within how many hours, and for how many dollars, a share of all runs is done."""

    share: Decimal
    hours: Decimal
    usd: Decimal


@dataclass(frozen=True, slots=True)
class RunOutlook:
    """Hold what the simulation of a run shows: four of five runs take and cost so much, and two chances.

    `done` is the chance that the run is done by its goal, within its cap and before its rental ends; None without a
    goal. `within` is the chance that its bill is inside the budget; None without a budget. `goodput` is the share of
    the wall clock in which the run advances, `utilisation` the share of the GPUs' peak rate that it uses over all.
    `curve` is the whole distribution; it is drawn and said, and never stored.
    """

    hours_low: Decimal
    hours_high: Decimal
    usd_low: Decimal
    usd_high: Decimal
    goodput: Decimal
    utilisation: Decimal | None = None
    done: Decimal | None = None
    within: Decimal | None = None
    curve: tuple[CurvePoint, ...] = ()


def outlook(
    run: RunTime, how: Checkpointing, lost: Loss, before_h: Decimal, bill: RunBill, limits: RunLimits
) -> RunOutlook:
    """Simulate a run whose time is known; `before_h` is the time from the launch to its first step."""
    rate = run.throughput
    times = RunTimes(
        work_h=float(run.hours.median),
        sigma=0.0 if rate is None else rate.sigma,
        losses_per_h=float(lost.rate_h),
        interval_h=float(lost.interval_h or 0),
        write_h=float(how.write_h),
        restart_h=float(how.restart_h),
        before_h=float(before_h),
    )
    found = simulate(times, bill, limits)
    # Evaluation is part of the hours of work, but the run does not advance meanwhile.
    goodput = found.goodput / float(run.evaluated)
    return RunOutlook(
        hours_low=_rounded(found.hours_low),
        hours_high=_rounded(found.hours_high),
        usd_low=_rounded(found.usd_low),
        usd_high=_rounded(found.usd_high),
        goodput=_share(goodput),
        utilisation=_share(rate.mfu * goodput) if rate is not None and run.trains else None,
        done=None if limits.goal_h is None else _share(found.done),
        within=None if found.within is None else _share(found.within),
        curve=tuple(
            CurvePoint(Decimal(str(share)), _rounded(hours), _rounded(dollars))
            for share, hours, dollars in zip(CURVE, found.hours_curve, found.usd_curve, strict=True)
        ),
    )


def _rounded(number: float) -> Decimal:
    return Decimal(f"{number:.6f}")


def _share(number: float) -> Decimal:
    return Decimal(f"{min(max(number, 0.0), 1.0):.4f}")


def range_said(found: RunOutlook) -> str:
    """Say in which range four of five runs stay: `Four of five runs take 5 h to 8 h and cost $10.00 to $16.00.`."""
    hours = f"{about_hours(found.hours_low)} to {about_hours(found.hours_high)}"
    return f"Four of five runs take {hours} and cost {usd(found.usd_low)} to {usd(found.usd_high)}."


def points_said(found: RunOutlook) -> str:
    """Say three points of the curve: within how long, and for how much, a tenth, half and nine tenths are done."""
    shares = {Decimal(str(share)) for share in (LOW, 0.5, HIGH)}
    points = [
        f"{one.share:.0%} by {about_hours(one.hours)} and {usd(one.usd)}" for one in found.curve if one.share in shares
    ]
    return f"Of all runs are done: {', '.join(points)}." if points else ""


def chances_said(found: RunOutlook) -> str:
    """Say how likely the goal and the budget are kept, where they were named; else nothing."""
    return " ".join(_chances(found))


def _chances(found: RunOutlook) -> Iterator[str]:
    named = ((found.done, "done by the goal"), (found.within, "within the budget"))
    said = [f"{percent(chance)} {what}" for chance, what in named if chance is not None]
    if said:
        yield f"Chances: {', '.join(said)}."


def percent(chance: Decimal) -> str:
    """Write a chance in whole percents: never 0 % or 100 %, because no forecast is that sure."""
    if chance < _HUNDREDTH:
        return "below 1%"
    if chance > 1 - _HUNDREDTH:
        return "above 99%"
    return f"{chance:.0%}"


def speed_said(found: RunOutlook) -> str:
    """Say which share of the time the run advances, and which share of the GPUs' peak rate that is."""
    used = "" if found.utilisation is None else f", which uses {percent(found.utilisation)} of the GPUs' peak rate"
    return f"The run advances in {percent(found.goodput)} of its time (goodput){used}."
