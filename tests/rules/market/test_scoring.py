"""The tier of a run and the reasons that depend on its time and memory, one case each."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import cast

import pytest

from bot.rules.market.parts import Scenario
from bot.rules.market.scoring import IN_TIME, UNKNOWN_TIME, Case, _tier, unsuited
from bot.rules.sizing.run_time import RunTime
from bot.rules.sizing.throughput import RunHours
from bot.rules.viability.obstacles import Obstacle
from tests.rules.builders import offer

_ZERO, _HOURS = Decimal(0), Decimal(2)
RUN = RunTime(RunHours(_HOURS, _HOURS, _HOURS), True, None, None, _ZERO, None, _ZERO, None, True, ())


def case(run: RunTime | None, host_gb: Decimal = _ZERO, *, offloads: bool = False) -> Case:
    return Case(run, 0, cast("Scenario", None), _ZERO, host_gb, offloads)


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
