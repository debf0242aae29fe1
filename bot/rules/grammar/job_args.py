"""What the words of a job said, and the portable job request that they become."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from bot.rules.policy.policy import Policy
from ledger.kernel.job import GpuConstraint, JobRequest, SpotPolicy


@dataclass(frozen=True, slots=True)
class JobArgs:
    """What the words of a job said; None or empty where nothing was said. Memory is GB per GPU, money dollars.

    `work` holds the words that describe a run, such as `model=7B`, for `bot.rules.grammar.run_words.workload`.
    """

    gpu_names: tuple[str, ...] = ()
    count_min: int = 1
    count_max: int = 1
    memory_gb_min: Decimal | None = None
    memory_gb_max: Decimal | None = None
    hours: Decimal | None = None
    disk_gb: int | None = None
    budget_usd: Decimal | None = None
    max_price_usd_h: Decimal | None = None
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    spot: SpotPolicy = SpotPolicy.NO
    min_reliability: Decimal | None = None
    memory_gb_total_min: Decimal | None = None
    verified_only: bool = False
    min_cuda: Decimal | None = None
    min_capability: Decimal | None = None
    min_available_s: int | None = None
    offer_id: str | None = None
    image: str | None = None
    workload: str = "training"
    model: str | None = None
    tokens: int | None = None
    run: str | None = None
    checkpoint: str | None = None
    work: tuple[str, ...] = ()
    reason: str = ""
    label: str | None = None


def job_request(args: JobArgs, policy: Policy, hours: Decimal | None = None) -> JobRequest:
    """The portable job request for parsed words. `hours` fills in where none were said, as an inventory needs."""
    spoken = args.hours if args.hours is not None else hours
    if spoken is None:
        raise ValueError("a job needs its hours")
    return JobRequest(
        gpu=GpuConstraint(args.gpu_names, args.count_min, args.count_max, args.memory_gb_min, args.memory_gb_max),
        hours=spoken,
        disk_gb=policy.disk_gb(args.workload, args.disk_gb),
        workload=args.workload,
        candidates=args.clouds,
        regions=args.regions,
        spot=args.spot,
        max_price_usd_h=args.max_price_usd_h,
        budget_cap_usd=args.budget_usd,
        min_reliability=args.min_reliability,
        memory_gb_total_min=args.memory_gb_total_min,
        verified_only=args.verified_only,
        min_cuda=args.min_cuda,
        min_capability=args.min_capability,
        min_available_s=args.min_available_s,
        image=args.image,
        run=args.run,
        model=args.model,
        tokens=args.tokens,
        checkpoint=args.checkpoint,
        work=args.work,
        offer_id=args.offer_id,
        reason=args.reason,
        label=args.label,
    )
