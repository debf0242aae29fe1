"""What losing a host costs: how often checkpoints are best written, and the share of the work that is lost."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.jobs.facets.work import workload
from bot.rules.market.traffic import traffic
from bot.rules.policy.policy import Policy
from bot.rules.sizing.interruptions import Checkpointing, loss
from bot.rules.sizing.run_time import RunTime, run_time
from tests.rules.builders import SHARES, offer

POLICY = Policy()
WORDS = ("model=1B", "tokens=2B", "seq=2048", "batch=512", "precision=bf16")


def run(*words: str) -> RunTime:
    return run_time(workload(words or WORDS), "H100-SXM", 8, Decimal(1))


def test_youngs_interval_by_hand() -> None:
    """A chance of 1 - 1/e a day is one loss in 24 h: with 3 minutes to write, sqrt(2 x 0.05 x 24) = 1.549 h."""
    found = loss(Decimal(1) - Decimal(1).exp() ** -1, Checkpointing(Decimal("0.05"), Decimal("0.1")))
    assert float(found.rate_h) == pytest.approx(1 / 24)
    assert found.interval_h is not None
    assert float(found.interval_h) == pytest.approx(1.549193, rel=1e-5)
    # An interval and its checkpoint take (24 h + the restart) x (e ^ (their hours / 24) - 1) on average.
    whole = (24 + 0.1) * math.expm1((1.549193 + 0.05) / 24)
    assert float(found.share) == pytest.approx(whole / 1.549193 - 1, rel=1e-5)
    # Nearly the first order: a checkpoint an interval, and half an interval and a restart a loss.
    assert float(found.share) == pytest.approx(0.05 / 1.549193 + (1.549193 / 2 + 0.1) / 24, rel=0.05)


def test_a_longer_window_and_a_faster_disk_lose_less() -> None:
    day = Checkpointing(Decimal("0.05"), Decimal("0.1"))
    week = replace(day, window_h=Decimal(168))
    assert float(loss(Decimal("0.3"), week).rate_h) == pytest.approx(
        float(loss(Decimal("0.3"), day).rate_h) / 7, rel=1e-6
    )
    slow, fast = (replace(POLICY, checkpoint_write_gb_s=Decimal(n)) for n in ("0.5", "5"))
    long, short = (traffic(run(), 120, policy).checkpointing(offer()) for policy in (slow, fast))
    assert long.write_h == 10 * short.write_h
    wide = traffic(run(), 120, replace(POLICY, loss_window_h=Decimal(48))).checkpointing(offer())
    assert wide == replace(long, window_h=Decimal(48))


def test_no_other_interval_is_better() -> None:
    how = Checkpointing(Decimal("0.05"), Decimal("0.1"))
    best = loss(Decimal("0.3"), how).share
    for every in ("0.2", "0.9", "3", "20"):
        assert loss(Decimal("0.3"), replace(how, every_h=Decimal(every))).share >= best


def test_without_checkpoints_only_the_restart_is_lost_and_without_losses_nothing() -> None:
    serving = loss(Decimal("0.5"), Checkpointing(Decimal(0), Decimal("0.1")))
    assert serving.interval_h is None
    assert float(serving.share) == pytest.approx(-math.log(0.5) / 24 * 0.1, rel=1e-4)
    safe = loss(Decimal(0), Checkpointing(Decimal("0.05"), Decimal("0.1")))
    assert safe.share == 0
    assert safe.interval_h is None


@given(pair=st.tuples(SHARES, SHARES), write=st.decimals(0, 1, places=3), every=st.none() | st.decimals(1, 9, places=1))
def test_a_higher_chance_never_costs_less(pair: tuple[Decimal, Decimal], write: Decimal, every: Decimal | None) -> None:
    how = Checkpointing(write, Decimal("0.05"), every)
    assert loss(min(pair), how).share <= loss(max(pair), how).share


def test_a_said_pause_between_checkpoints_is_at_least_their_writing() -> None:
    found = run("model=1B", "tokens=1B", "checkpoint-every=1m", "checkpoint-size=900GB")
    how = traffic(found, 120, POLICY).checkpointing(offer())
    assert how.every_h == how.write_h == Decimal("0.5")
