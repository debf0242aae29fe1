"""Pick the cheapest GPU for a run on random markets with the real ranking, and compare with a published benchmark.

`python -m tests.bench.throughput_ranking [--markets 200]`. Truth: training rates on one GPU in 16 bits
(lambdal/deeplearning-benchmark @aa5addb6, pytorch/pytorch-train-throughput-fp16.csv and
pytorch-train-throughput-v2-fp16.csv, NVIDIA's PyTorch container). No row of that benchmark is in the fit. Each market
sells all types, each at a price of its own between $0.20 and $4 an hour, equally likely on the logarithm: prices of a
marketplace say little about speed. The offers pass viability, are priced with all parts of their totals and ranked as
in a plan; right is the pick with the least price per published rate.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from statistics import mean

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.work_words import parse
from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from bot.rules.sizing.throughput import tokens_per_s
from providers.capabilities import BillingRule, Capabilities
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS
from tests.providers.read_offers import WHOLE

SEED = 57
MARKETS = 200
LEAST, MOST = 0.2, 4.0
TOKENS = "tokens=1B"
#: An image with code for every type.
IMAGE = "nvidia/cuda:12.8.1-devel-ubuntu22.04"
RUN = "type=finetune layers=24 width=1024 heads=16 vocab=30522 seq=384 precision=fp16"
SEQUENCE = 384
#: GPU → sequences per second of BERT large.
TRUTH: Mapping[str, float] = {
    "QuadroRTX8000": 50,
    "V100-16GB": 57,
    "RTX3090": 52,
    "A10": 42,
    "A100-PCIE-40GB": 117,
    "A100-PCIE-80GB": 140,
    "A100-SXM-80GB": 152,
    "RTX6000Ada": 79,
    "A6000": 68,
    "RTX4090": 93,
    "H100-PCIE": 204,
    "H100-SXM": 311,
    "GH200": 296,
    "B200": 523,
}
#: The types with rates of all three models.
_TYPES = (*(name for name in TRUTH if name not in ("GH200", "B200")),)
#: run → GPU → rate: BERT base and large in sequences, Transformer-XL large in tokens per second.
MODELS: Mapping[str, Mapping[str, float]] = {
    "type=finetune layers=12 width=768 heads=12 vocab=30522 seq=384 precision=fp16": dict(
        zip(_TYPES, (146, 189, 172, 135, 368, 415, 443, 255, 198, 297, 567, 812), strict=True)
    ),
    RUN: {name: TRUTH[name] for name in _TYPES},
    "type=finetune layers=18 width=1024 heads=16 vocab=30522 seq=192 precision=fp16": dict(
        zip(
            _TYPES,
            (7853, 6071, 7821, 5614, 16034, 17082, 17918, 16049, 11126, 14509, 22586, 30841),
            strict=True,
        )
    ),
}
AIM_RIGHT, AIM_REGRET = 180, 0.02
_CLOUD = Capabilities(
    stop=True, spot=True, labels=True, balance=True, charges=True, logs=True, free=False, billing=BillingRule()
)
_NOW = datetime(2026, 1, 1, tzinfo=UTC)

Pick = Callable[[Mapping[str, float]], str]


@dataclass(frozen=True, slots=True)
class Score:
    """How often the cheapest was picked, and what the picks cost beyond it on average."""

    right: int
    markets: int
    regret: float


def rates() -> dict[str, float]:
    """The estimated tokens per second of the run on every type."""
    found = {}
    for name in TRUTH:
        answer = tokens_per_s(parse(RUN), GPUS[name], 1)
        assert answer is not None
        found[name] = answer.expected
    return found


def ranked(run: str = RUN) -> Pick:
    """Pick what a plan of the run would recommend."""
    job = JobRequest(GpuConstraint((), 1, 1), Decimal(1), work=(*run.split(), TOKENS), image=IMAGE)

    def pick(prices: Mapping[str, float]) -> str:
        sold = [
            Offer(
                cloud="vast",
                key=name,
                gpu=name,
                gpu_count=1,
                memory_gb=Decimal(GPUS[name].memory_gb),
                region="US",
                spot=False,
                price_usd_h=Decimal(f"{price:.6f}"),
                fetched_at=_NOW,
                reliability=Decimal("0.99"),
                ram_gb=Decimal(64),
                disk_gb_max=500,
            )
            for name, price in prices.items()
        ]
        return rank(sold, job, Policy(), {"vast": _CLOUD}, top=1, proof=WHOLE).options[0].offer.gpu

    return pick


def by_rate(estimates: Mapping[str, float]) -> Pick:
    """Pick the least price per rate."""
    return lambda prices: min(prices, key=lambda name: prices[name] / estimates[name])


def score(pick: Pick, truth: Mapping[str, float] = TRUTH, markets: int = MARKETS, seed: int = SEED) -> Score:
    """Pick on random markets, the same each time."""
    draw = random.Random(seed)
    right, beyond = 0, []
    for _ in range(markets):
        prices = {name: LEAST * (MOST / LEAST) ** draw.random() for name in truth}
        costs = {name: price / truth[name] for name, price in prices.items()}
        best, picked = min(costs, key=costs.__getitem__), pick(prices)
        right += picked == best
        beyond.append(costs[picked] / costs[best] - 1)
    return Score(right, markets, mean(beyond))


def thirty() -> Score:
    """Three models on ten markets each, of the types that the benchmark has all three for."""
    found = [score(ranked(run), truth, markets=10) for run, truth in MODELS.items()]
    return Score(sum(one.right for one in found), 30, mean(one.regret for one in found))


def report(markets: int = MARKETS) -> Iterator[str]:
    """The lines of the report."""
    found = rates()
    middle = sorted(found[name] / TRUTH[name] for name in TRUTH)[len(TRUTH) // 2]
    for name, rate in found.items():
        measured = TRUTH[name] * SEQUENCE
        apart = rate / TRUTH[name] / middle - 1
        yield f"  {name:<16}{measured:>10,.0f}{rate:>10,.0f} tokens/s{apart:>+8.0%} beside the others"
    ours = score(ranked(), markets=markets)
    sheets = {name: float(GPUS[name].peak_bf16_tflops or 0) for name in TRUTH}
    others = {
        "estimated rates alone": by_rate(found),
        "data sheets' peak": by_rate(sheets),
        "price alone": by_rate(dict.fromkeys(TRUTH, 1.0)),
    }
    every = {"the ranking": ours, **{name: score(pick, markets=markets) for name, pick in others.items()}}
    every["three models"] = thirty()
    for name, one in every.items():
        yield f"  {name:<24}{one.right:>5} of {one.markets} right, mean regret {one.regret:.1%}"
    met = ours.right >= AIM_RIGHT * markets // MARKETS and ours.regret <= AIM_REGRET
    yield f"  aims (180 of 200, 2 %) {'met' if met else 'MISSED'}"


def main(arguments: list[str] | None = None) -> int:
    """0 when the aims are met."""
    parser = argparse.ArgumentParser(description="Cheapest GPU for a run on random markets.")
    parser.add_argument("--markets", type=int, default=MARKETS)
    lines = list(report(parser.parse_args(arguments).markets))
    sys.stdout.write("\n".join([*lines, ""]))
    return 0 if lines[-1].endswith("met") else 1


if __name__ == "__main__":
    raise SystemExit(main())
