"""Work on every GPU: the same tokens, the total that a plan shows, and a reason for each GPU that cannot run it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.job import JobRequest
from bot.rules.market.ranking import rank
from bot.rules.market.work_comparison import WorkComparison, compare_work
from bot.rules.policy.policy import Policy
from providers.contract import Offer
from providers.gpus.table import GPUS
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, job, offer

POLICY = Policy()
PRICES = {"RTX4090": "0.35", "H100-SXM": "2.10", "A100-SXM-80GB": "1.20", "T4": "0.15", "RTX5090": "0.60"}


def sold(gpu: str, count: int = 1, **changes: Any) -> Offer:
    said: dict[str, Any] = {
        "gpu_count": count,
        "memory_gb": Decimal(GPUS[gpu].memory_gb),
        "price_usd_h": Decimal(PRICES[gpu]) * count,
        "cuda_max": Decimal("12.8"),
        "ram_gb": Decimal(512),
        **changes,
    }
    return offer(f"{gpu}-{count}", gpu=gpu, **said)


MARKET = tuple(sold(gpu, count) for gpu in PRICES for count in (1, 8))


def asked(line: str) -> JobRequest:
    found = parse(f"compare {line}")
    assert not isinstance(found, GrammarError), found.message
    assert found.job is not None
    return found.job


def compared(line: str, offers: tuple[Offer, ...] = MARKET, policy: Policy = POLICY) -> WorkComparison:
    return compare_work(offers, asked(line), policy, CLOUDS)


def test_each_gpu_stands_at_the_offer_and_the_total_of_its_plan() -> None:
    found = compared("model=1B tokens=2B")
    totals = [row.option.estimate.expected_usd for row in found.rows]
    assert totals == sorted(totals)
    assert [row.option.rank for row in found.rows] == [1, 2, 3]
    for row in found.rows:
        own = tuple(one for one in MARKET if one.gpu == row.option.offer.gpu)
        best = rank(own, found.job, POLICY, CLOUDS, top=1, proof=WHOLE).options[0]
        assert (row.option.offer, row.option.estimate) == (best.offer, best.estimate)
        assert row.per_million_usd * 2000 == row.option.estimate.expected_usd


def test_the_price_by_the_hour_does_not_decide() -> None:
    """An H100 that costs six times as much per hour as an RTX 4090 does a large model's work for less."""
    found = compared("model=30B tokens=1B disk=1TB", tuple(sold(gpu, 8) for gpu in ("H100-SXM", "RTX4090")))
    prices = [row.option.offer.price_usd_h or Decimal(0) for row in found.rows]
    assert found.rows[0].option.offer.gpu == "H100-SXM"
    assert prices[0] == max(prices)


def test_a_gpu_that_cannot_run_it_has_its_reason() -> None:
    reasons = {one.gpu: one.reason for one in compared("model=1B tokens=2B").unable}
    assert reasons["T4"] == "That GPU can't compute in this precision; precision= names another, such as fp16."
    assert "compute capability" in reasons["RTX5090"]
    assert set(reasons) == {"T4", "RTX5090"}
    (small,) = compared("model=70B type=serving tokens=2B", (sold("RTX4090"),)).unable
    assert small.reason.startswith("Does not fit: ")
    (skipped,) = compared("model=1B tokens=2B max=$0.01", (sold("RTX4090"),)).unable
    assert skipped.reason == "The expected total is above the budget."
    unknown = offer("x", gpu="MI355X", gpu_count=1, memory_gb=Decimal(288), price_usd_h=Decimal(3))
    assert {one.gpu for one in compared("model=1B image=rocm/pytorch:latest", (unknown,)).unable} <= {"MI355X"}


def test_a_gpu_whose_rate_is_not_published_is_not_compared() -> None:
    strange = offer("x", gpu="RTX-UNHEARD", gpu_count=1, memory_gb=Decimal(24), compute_capability=Decimal("8.9"))
    (one,) = compared("model=1B tokens=2B", (strange,)).unable
    assert one.reason == "RTX-UNHEARD is not a GPU whose rates are known here."


def test_free_clouds_unknown_clouds_and_blocked_gpus_are_left_out() -> None:
    free = offer("f", cloud="kaggle", gpu="T4", price_usd_h=Decimal(0))
    elsewhere = offer("e", cloud="nobody")
    found = compared("model=1B", (free, elsewhere, sold("H100-SXM")), Policy(blocked_gpus=("H100-SXM",)))
    assert (found.rows, found.unable) == ((), ())


def test_work_without_tokens_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="without a model"):
        compare_work(MARKET, job(), POLICY, CLOUDS)
