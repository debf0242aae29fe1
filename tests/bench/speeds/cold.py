"""Forty first requests of a cold market: how long each takes, whether it is the whole, and what the copies cost.

Every question meets clouds that nobody asked for two minutes, on a clock that only waits move: what is timed is the
pace of the clouds. Each adapter keeps to its documented pace, and each sandbox counts the calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from bot.services.market.catalog import Catalog, MarketAnswer
from ledger.kernel.job import GpuConstraint, JobRequest, SpotPolicy
from providers.rate_limits import LocalPacer
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.server import build_app
from providers.sandboxes import sandboxes
from tests.support.clock import SteppedClock
from tests.support.serving import adapters
from tests.support.wire import reachable

POLICY = Policy()
PATIENCE_S = 3.0
IDLE_S = 120.0
COPIED_S = 3_600.0
RUNS = (
    ("model=7B", "type=lora", "tokens=20M"),
    ("model=1B", "tokens=300M"),
    ("model=13B", "type=qlora", "tokens=10M"),
    ("model=7B", "type=qlora", "tokens=5M"),
)
NAMES = ("RTX4090", "H100-SXM", "A100-SXM-80GB", "RTX3090", "L40S", "A6000", "RTX5090", "H200")


def questions() -> Iterator[tuple[str, JobRequest]]:
    """Sixteen described runs, twelve open counts and twelve named GPUs."""
    for number in range(16):
        job = JobRequest(
            GpuConstraint((), 1, 8), Decimal(6), work=RUNS[number % 4], disk_gb=(100, 200, 500, 50)[number // 4]
        )
        yield "described", replace(job, spot=SpotPolicy.ANY if number == 15 else SpotPolicy.NO)
    for number in range(12):
        names = () if number < 6 else (NAMES[number - 6],)
        job = JobRequest(GpuConstraint(names, 1, (8, 4, 2)[number % 3]), Decimal(3), disk_gb=(50, 120)[number % 2])
        yield "open count", replace(job, spot=SpotPolicy.ANY if number == 5 else SpotPolicy.NO)
    for number in range(12):
        yield (
            "named",
            JobRequest(GpuConstraint((NAMES[number % 8],), (1, 8)[number // 8], (1, 8)[number // 8]), Decimal(2)),
        )


async def asked(
    clouds: dict[str, SandboxCloud], url: str, clock: SteppedClock, job: JobRequest
) -> tuple[Catalog, MarketAnswer]:
    """The answer to a process that knows nothing yet, and waits for all of it."""
    environments = {name: cloud.environment(f"{url}/{name}") for name, cloud in clouds.items()}
    catalog = Catalog(adapters(environments, clock, LocalPacer(clock), volumes=False), clock, 10.0)
    catalog.patience_s = None
    return catalog, await catalog.market(job, job.disk_gb, policy=POLICY)


def first(catalog: Catalog, job: JobRequest, market: MarketAnswer) -> str:
    """The offer that is recommended."""
    options = rank(market.offers, job, POLICY, catalog.capabilities, proof=market.completeness.proof, top=1).options
    return options[0].offer.id if options else "nothing"


async def cold() -> list[tuple[str, str, str]]:
    """The lines of the report: name, value, aim."""
    clock = SteppedClock()
    clouds = sandboxes(clock, SandboxTiming.quick(enforce_rate_limits=True))
    took: dict[str, list[float]] = {}
    whole = equal = total = 0
    async with reachable(build_app(clouds, tick_s=None)) as url:
        for kind, job in questions():
            clock.advance(IDLE_S)
            began_s = clock.monotonic()
            catalog, market = await asked(dict(clouds), url, clock, job)
            took.setdefault(kind, []).append(clock.monotonic() - began_s)
            clock.advance(IDLE_S)
            warm, again = await asked(dict(clouds), url, clock, job)
            whole, total = whole + market.completeness.is_complete, total + 1
            equal += first(catalog, job, market) == first(warm, job, again)
            await catalog.close()
            await warm.close()
        copies = await copied(dict(clouds), url, clock)
    every = [one for times in took.values() for one in times]
    quick = sum(one <= PATIENCE_S for one in every)
    return [
        (f"cold first requests, final within {PATIENCE_S:.0f} s", f"{quick} of {total}", "aim >= 36 of 40"),
        ("the slowest of them, at the clouds' pace", f"{max(every):.0f} s", "spot and on-demand of everything"),
        ("complete answers", f"{whole} of {total}", "all"),
        ("the same recommendation as the warm market", f"{equal} of {total}", "all"),
        *((f"{kind}: slowest", f"{max(times):.1f} s", f"{len(times)} requests") for kind, times in took.items()),
        *((f"copy of {cloud}: calls an hour", f"{count}", "counted by its sandbox") for cloud, count in copies.items()),
    ]


async def copied(clouds: dict[str, SandboxCloud], url: str, clock: SteppedClock) -> dict[str, int]:
    """The calls that an hour of copies makes at each cloud."""
    clock.advance(IDLE_S)
    environments = {name: cloud.environment(f"{url}/{name}") for name, cloud in clouds.items()}
    catalog = Catalog(adapters(environments, clock, LocalPacer(clock), volumes=False), clock, 10.0)
    began, until_s = clock.now(), clock.monotonic() + COPIED_S
    engine = next(iter(clouds.values())).engine
    counts = dict.fromkeys(clouds, 0)
    while clock.monotonic() < until_s:
        for cloud in catalog.copied_clouds:
            before = len(engine.calls)
            await catalog.copy_next(cloud, POLICY)
            counts[cloud] += len(engine.calls) - before
        clock.advance(1)
    await catalog.close()
    assert all(call.at >= began for call in list(engine.calls)[-1:])
    return counts
