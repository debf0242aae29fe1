"""Pick the cheapest GPU per token on random markets, and compare with a published benchmark of many GPUs.

`python -m tests.bench.throughput_ranking [--markets 200]`. Truth: sequences per second of fine-tuning BERT large in 16
bits on one GPU (lambdal/deeplearning-benchmark @aa5addb6, pytorch/pytorch-train-throughput-fp16.csv and
pytorch-train-throughput-v2-fp16.csv, NVIDIA's PyTorch container). No row of that benchmark is in the fit. Each market
sells all 14 types, each at a price of its own between $0.20 and $4 an hour, equally likely on the logarithm: prices of
a marketplace say little about speed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from bot.rules.grammar.workload_words import parse
from bot.rules.sizing.throughput import tokens_per_s
from providers.gpus.table import GPUS

SEED = 57
MARKETS = 200
LEAST, MOST = 0.2, 4.0
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
AIM_RIGHT, AIM_REGRET = 180, 0.02


@dataclass(frozen=True, slots=True)
class Score:
    """How often the cheapest per token was picked, and what the picks cost beyond it on average."""

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


def score(estimates: Mapping[str, float], markets: int = MARKETS) -> Score:
    """Pick by `estimates` on random markets, the same each time."""
    draw = random.Random(SEED)
    right, beyond = 0, []
    for _ in range(markets):
        prices = {name: LEAST * (MOST / LEAST) ** draw.random() for name in TRUTH}
        costs = {name: price / TRUTH[name] for name, price in prices.items()}
        best = min(costs, key=costs.__getitem__)
        picked = min(prices, key=lambda name: prices[name] / estimates[name])
        right += picked == best
        beyond.append(costs[picked] / costs[best] - 1)
    return Score(right, markets, mean(beyond))


def report(markets: int = MARKETS) -> Iterator[str]:
    """The lines of the report."""
    found = rates()
    middle = sorted(found[name] / TRUTH[name] for name in TRUTH)[len(TRUTH) // 2]
    for name, rate in found.items():
        measured = TRUTH[name] * SEQUENCE
        apart = rate / TRUTH[name] / middle - 1
        yield f"  {name:<16}{measured:>10,.0f}{rate:>10,.0f} tokens/s{apart:>+8.0%} beside the others"
    ours = score(found, markets)
    sheets = score({name: float(GPUS[name].peak_bf16_tflops or 0) for name in TRUTH}, markets)
    price = score(dict.fromkeys(TRUTH, 1.0), markets)
    for name, one in (("these estimates", ours), ("data sheets' peak", sheets), ("price alone", price)):
        yield f"  {name:<20}{one.right:>5} of {one.markets} right, mean regret {one.regret:.1%}"
    met = ours.right >= AIM_RIGHT * markets // MARKETS and ours.regret <= AIM_REGRET
    yield f"  aims (180 of 200, 2 %) {'met' if met else 'MISSED'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the aims are met."""
    parser = argparse.ArgumentParser(description="Cheapest GPU per token on random markets.")
    parser.add_argument("--markets", type=int, default=MARKETS)
    lines = list(report(parser.parse_args(arguments).markets))
    sys.stdout.write("\n".join([*lines, ""]))
    return 0 if lines[-1].endswith("met") else 1


if __name__ == "__main__":
    raise SystemExit(main())
