"""The tier of a run and the reasons that depend on its time and memory, one case each."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import cast

import pytest

from bot.rules.market.parts import Scenario, loss_chance, scenarios, wall_h
from bot.rules.market.ranking import ordered
from bot.rules.market.scoring import IN_TIME, LATE, TIERS, UNKNOWN_TIME, Case, Cases, _tier, score, unsuited
from bot.rules.policy.policy import Policy
from bot.rules.sizing.run_time import RunTime
from bot.rules.sizing.throughput import RunHours
from bot.rules.viability.obstacles import Obstacle
from providers.gpus.constraint import GpuConstraint
from tests.rules.builders import CLOUDS, job, offer

_ZERO, _HOURS = Decimal(0), Decimal(2)
RUN = RunTime(RunHours(_HOURS, _HOURS, _HOURS), True, None, None, _ZERO, None, _ZERO, None, True, ())


def case(run: RunTime | None, host_gb: Decimal = _ZERO, *, offloads: bool = False) -> Case:
    return Case(run, 0, cast("Scenario", None), _ZERO, _ZERO, host_gb, offloads)


@pytest.mark.parametrize(
    ("run", "tier"),
    [
        (None, IN_TIME),
        (RUN, IN_TIME),
        (replace(RUN, known=False), UNKNOWN_TIME),
    ],
)
def test_the_tier_of_a_run(run: RunTime | None, tier: int) -> None:
    assert _tier(run) == tier


def test_why_an_offer_does_not_suit_a_run() -> None:
    assert unsuited(offer(ram_gb=Decimal(1)), case(None, Decimal(64))) is None
    assert unsuited(offer(ram_gb=Decimal(32)), case(RUN, Decimal(64))) is Obstacle.RAM
    assert unsuited(offer(ram_gb=None), case(RUN, Decimal(64), offloads=True)) is Obstacle.RAM
    assert unsuited(offer(ram_gb=None), case(RUN, Decimal(64))) is None
    assert unsuited(offer(ram_gb=Decimal(64), available_for_s=7199), case(RUN, Decimal(64))) == "too_short"
    assert unsuited(offer(ram_gb=Decimal(64), available_for_s=7200), case(RUN, Decimal(64))) is None


def test_a_run_that_ends_exactly_when_its_rental_does_is_in_time_and_a_moment_later_it_is_late() -> None:
    described = job("1", gpu=GpuConstraint(count_min=1, count_max=8), work=("model=1B", "tokens=50M", "seq=2048"))
    sold = offer("h", gpu="H100-SXM", memory_gb=Decimal(80), price_usd_h=Decimal(2))
    policy = Policy()
    case_of = Cases(described, policy, CLOUDS, whole=True).of(sold)
    wall = wall_h(sold, loss_chance(sold, policy), case_of.scenario)
    for hours, tier in ((wall, IN_TIME), (wall - Decimal("1e-20"), LATE)):
        cases = Cases(replace(described, hours=hours), policy, CLOUDS, whole=True)
        (found,) = ordered([sold], replace(described, hours=hours), policy, CLOUDS, whole=True).scored()
        assert (found.order[0] % TIERS, score(sold, cases).order[0] % TIERS) == (tier, tier)


def test_a_rental_by_the_hour_lasts_its_hours() -> None:
    sold = offer("h")
    plain = scenarios(job("3"), Policy(), CLOUDS[sold.cloud])[0]
    assert wall_h(sold, Decimal("0.5"), plain) == 3
