"""The market's own CPU time: offers of five clouds, injected above the transport, filtered and ranked."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import cast

from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from bot.services.market.catalog import Catalog, MarketListing
from bot.services.market.document import market_page, pieces
from providers.capabilities import BillingRule, BillingStart, Capabilities
from providers.completeness import AnswerPart
from providers.contract import Offer, Provider, Stock
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS
from tests.support.clock import SteppedClock

CLOUDS = ("vast", "runpod", "lambda", "tensordock", "kaggle")
SIZES = (5_000, 10_000, 20_000, 40_000)
SIZE = 20_000
AIM_MS = 100.0
PAGE = 50
PAGE_AIM_MS = 10.0
ROUNDS = 9
SEED = 11
GPU_NAMES = ("RTX4090", "RTX3090", "RTX5090", "A100-SXM-80GB", "H100-SXM", "L40S", "B200")
PLACES = (("US", "Texas, US"), ("SE", "Sweden, SE"), ("DE", "EU-DE-1"), ("CN", "China, CN"), (None, "us-east-1"))
#: What is asked: one GPU by its name as most people ask, and everything with 24 GB or more, which leaves little out.
QUESTIONS: Mapping[str, JobRequest] = {
    "one 4090": JobRequest(GpuConstraint(("RTX4090",)), Decimal(6), max_price_usd_h=Decimal(2)),
    "any GPU of 24 GB+": JobRequest(GpuConstraint((), 1, 8, Decimal(24)), Decimal(6)),
}


class Shelf:
    """A cloud whose answer is already parsed."""

    def __init__(self, name: str, offers: tuple[Offer, ...]) -> None:
        self.name = name
        self._offers = offers
        create = BillingRule(starts=BillingStart.CREATE, quantum_s=60)
        self.capabilities = Capabilities(
            stop=True, spot=True, labels=True, balance=True, charges=True, logs=True,
            free=name == "kaggle", billing=BillingRule() if name == "vast" else create,
        )  # fmt: skip

    async def offers(self, *_: object, **__: object) -> AnswerPart[Offer]:
        """Everything, at once: the transport costs nothing here."""
        return AnswerPart(self._offers)

    async def close(self) -> None:
        """It has no connection."""


def offers(cloud: str, count: int, clock: SteppedClock) -> Iterator[Offer]:
    """`count` offers of one cloud, the same for the same arguments."""
    draw = random.Random(f"{SEED}/{cloud}/{count}")
    for number in range(count):
        gpu = GPUS[draw.choice(GPU_NAMES)]
        country, region = draw.choice(PLACES)
        yield Offer(
            cloud=cloud,
            key=str(number),
            gpu=gpu.name,
            gpu_count=draw.choice((1, 1, 1, 2, 4, 8)),
            memory_gb=Decimal(gpu.memory_gb),
            region=region,
            country=country,
            spot=draw.random() < 0.1,
            price_usd_h=Decimal(0) if cloud == "kaggle" else Decimal(draw.randrange(1_000, 40_000_000)) / 1_000_000,
            fetched_at=clock.now(),
            storage_usd_h=Decimal(draw.randrange(0, 20_000)) / 1_000_000,
            egress_usd_gb=Decimal(draw.randrange(0, 20)) / 1_000,
            reliability=Decimal(draw.randrange(900, 1_000)) / 1_000 if cloud == "vast" else None,
            stock=draw.choice((None, Stock.LOW, Stock.MEDIUM, Stock.HIGH)),
            machine_id=str(draw.randrange(5_000)),
            verified=draw.random() < 0.8,
            compute_capability=gpu.compute_capability,
        )


async def measure(size: int, job: JobRequest) -> tuple[float, MarketListing]:
    """Median milliseconds of this process's CPU for one inventory of `size` offers, and its answer."""
    clock = SteppedClock()
    shelves = {name: Shelf(name, tuple(offers(name, size // len(CLOUDS), clock))) for name in CLOUDS}
    catalog = Catalog(cast("Mapping[str, Provider]", shelves), clock, 10.0)
    await catalog.inventory(job, Policy())
    await asyncio.sleep(0)
    took = []
    for _ in range(ROUNDS):
        clock.advance(61)  # Nothing is remembered, so that every round takes the whole way.
        gc.collect()
        began = time.process_time()
        found = await catalog.inventory(job, Policy())
        took.append((time.process_time() - began) * 1_000)
    await catalog.close()
    return statistics.median(took), found


async def measure_page(size: int) -> tuple[float, float]:
    """Median milliseconds of CPU for a page of 50 rows in the middle of a pinned listing, and for all of its rows."""
    _, listing = await measure(size, QUESTIONS["any GPU of 24 GB+"])
    middle = len(listing.rows) // 2
    page = _median_ms(lambda: market_page(listing, middle, PAGE).model_dump_json())
    return page, _median_ms(lambda: sum(map(len, pieces(listing))))


def _median_ms(work: Callable[[], object]) -> float:
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        took.append((time.process_time() - began) * 1_000)
    return statistics.median(took)


async def market() -> Iterator[tuple[str, str, str]]:
    """The lines of the report: name, value, aim."""
    page_ms, all_ms = await measure_page(SIZE)
    lines = [
        (f"inventory page: CPU p50 for {PAGE} of {SIZE:,} offers", f"{page_ms:.1f} ms", f"aim < {PAGE_AIM_MS:.0f} ms"),
        (f"inventory of all {SIZE:,} offers, written in pieces", f"{all_ms:.0f} ms", "one answer"),
    ]
    for name, job in QUESTIONS.items():
        medians = {size: (await measure(size, job))[0] for size in SIZES}
        lines.append((f"{name}: CPU p50 for {SIZE:,} offers", f"{medians[SIZE]:.0f} ms", f"aim < {AIM_MS:.0f} ms"))
        growth = ", ".join(f"{size // 1000}k {took:.0f} ms" for size, took in medians.items())
        per = medians[SIZES[-1]] / SIZES[-1] / (medians[SIZES[0]] / SIZES[0])
        lines.append((f"{name}: time per offer, 40k against 5k", f"{per:.2f} x", growth))
    return iter(lines)
