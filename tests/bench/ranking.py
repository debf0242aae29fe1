"""Ranking 100,000 offers with full estimates, beside what gpuhunt's `Catalog.query` takes for the same rows.

gpuhunt is optional: `uv sync --group bench`. Its rows hold what it filters and merges by: provider, GPU, number,
memory, price and spot. Both work on what is in memory already; ours also computes every total, mark and reason.
"""

from __future__ import annotations

import gc
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from ledger.kernel.job import GpuConstraint, JobRequest
from providers.contract import Offer
from tests.bench.market import Shelf, offers
from tests.support.clock import SteppedClock

CLOUDS = ("vast", "runpod", "lambda", "tensordock")
#: The same rows under names that gpuhunt reads from its catalog.
PEERS = {"vast": "aws", "runpod": "runpod", "lambda": "lambdalabs", "tensordock": "gcp"}
SIZE = 100_000
ROUNDS = 5
JOB = JobRequest(GpuConstraint((), 1, 8, Decimal(24)), Decimal(6))
RUN = replace(JOB, work=("model=1B", "tokens=2B", "seq=2048", "batch=512"))


def market(size: int) -> list[Offer]:
    """`size` offers of four clouds that cost money, the same each time."""
    clock = SteppedClock()
    return [one for cloud in CLOUDS for one in offers(cloud, size // len(CLOUDS), clock)]


def median_ms(work: Callable[[], object]) -> float:
    """Median milliseconds of this process's CPU, after one round that is not counted."""
    work()
    took = []
    for _ in range(ROUNDS):
        gc.collect()
        began = time.process_time()
        work()
        took.append((time.process_time() - began) * 1_000)
    return statistics.median(took)


def ours_ms(every: Sequence[Offer], job: JobRequest) -> float:
    """What ranking takes."""
    able = {cloud: Shelf(cloud, ()).capabilities for cloud in CLOUDS}
    return median_ms(lambda: rank(every, job, Policy(), able))


def gpuhunt_ms(every: Sequence[Offer]) -> float | None:
    """What gpuhunt takes to filter and merge the same rows by price; None where it is not installed."""
    if importlib.util.find_spec("gpuhunt") is None:
        return None
    from gpuhunt._internal.catalog import Catalog, ProviderCatalog  # noqa: PLC0415
    from gpuhunt._internal.models import CatalogItem  # noqa: PLC0415

    catalog = Catalog(auto_reload=False)
    catalog.loaded_at = 0.0
    for cloud in CLOUDS:
        rows = [
            CatalogItem(
                instance_name=one.id,
                location=one.region,
                price=float(one.price_usd_h or 0),
                cpu=8,
                memory=64.0,
                gpu_count=one.gpu_count,
                gpu_name=one.gpu,
                gpu_memory=float(one.memory_gb),
                spot=one.spot,
                disk_size=None,
                provider=PEERS[cloud],
                gpu_vendor="nvidia",
            )
            for one in every
            if one.cloud == cloud
        ]
        catalog.catalog[PEERS[cloud]] = ProviderCatalog("1", sorted(rows, key=lambda row: row.price))
    names = list(PEERS.values())
    found = catalog.query(provider=names, min_gpu_count=1, max_gpu_count=8, min_gpu_memory=24)
    wanted = sum(one.gpu_count <= 8 and one.memory_gb >= 24 for one in every)
    if len(found) != wanted:
        raise RuntimeError(f"gpuhunt found {len(found)} of {wanted} rows, so its time says nothing")
    return median_ms(lambda: catalog.query(provider=names, min_gpu_count=1, max_gpu_count=8, min_gpu_memory=24))


def ranking(size: int = SIZE) -> Iterator[tuple[str, str, str]]:
    """The lines of the report: name, value, aim."""
    every = market(size)
    peer = gpuhunt_ms(every)
    aim = "aim: no longer than gpuhunt" if peer is not None else "gpuhunt is not installed: uv sync --group bench"
    yield f"{size:,} offers for six hours, CPU p50", f"{ours_ms(every, JOB):.0f} ms", aim
    yield f"{size:,} offers for a described run, CPU p50", f"{ours_ms(every, RUN):.0f} ms", ""
    if peer is not None:
        yield f"gpuhunt Catalog.query, {size:,} rows, CPU p50", f"{peer:.0f} ms", "filters and merges by price only"
