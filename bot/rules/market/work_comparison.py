"""Compare work: what the same tokens of the same model cost on each GPU that is for sale, and which cannot run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from bot.rules.jobs.facets.work import workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.market.filters import EXCLUSIONS
from bot.rules.market.own_history import NO_HISTORY, OwnHistory
from bot.rules.market.ranking import RankedOption, rank
from bot.rules.policy.policy import Policy
from bot.rules.sizing.run_time import run_time
from bot.rules.sizing.workload import Workload
from bot.rules.viability.obstacles import Obstacle
from providers.capabilities import Capabilities
from providers.contract import Offer

_MILLION = 10**6


@dataclass(frozen=True, slots=True)
class WorkCost:
    """Hold what the work costs on one GPU, at the offer that a plan recommends among all that have this GPU."""

    option: RankedOption
    tokens: int

    @property
    def per_million_usd(self) -> Decimal:
        """Return the dollars of a million tokens; the total of the run over its tokens."""
        return self.option.estimate.expected_usd * _MILLION / self.tokens


@dataclass(frozen=True, slots=True)
class Unable:
    """Name a GPU that is for sale and cannot run the work, or not as it was asked for, and why."""

    gpu: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkComparison:
    """Hold the cost of one work on every GPU, the least total first, and the GPUs that cannot run it."""

    job: JobRequest
    work: Workload
    rows: tuple[WorkCost, ...]
    unable: tuple[Unable, ...]


def compare_work(
    offers: Iterable[Offer],
    job: JobRequest,
    policy: Policy,
    able: Mapping[str, Capabilities],
    own: OwnHistory = NO_HISTORY,
) -> WorkComparison:
    """Compare the work of a job, which has a model and tokens, on all GPUs. Free clouds are left out.

    ValueError for a job without either.
    """
    work = workload_of(job)
    tokens = None if work is None else work.total_tokens
    if work is None or tokens is None:
        raise ValueError("a comparison of work without a model and its tokens")
    by_gpu: dict[str, list[Offer]] = {}
    for offer in offers:
        if offer.cloud in able and not able[offer.cloud].free and offer.gpu not in policy.blocked_gpus:
            by_gpu.setdefault(offer.gpu, []).append(offer)
    rows, unable = [], []
    for gpu, sold in sorted(by_gpu.items()):
        ranked = rank(sold, job, policy, able, proof=None, top=1, own=own)
        rows += [WorkCost(one, tokens) for one in ranked.options[:1] if one.estimate.worst_hours is not None]
        if not ranked.options:
            most = max(ranked.excluded, key=lambda one: one.count)
            unable.append(Unable(gpu, _reason(most.reason_code, sold, work)))
        elif ranked.options[0].estimate.worst_hours is None:
            unable.append(Unable(gpu, " ".join(ranked.options[0].estimate.unknown)))
    rows.sort(key=lambda one: (one.option.estimate.expected_usd, one.option.offer.id))
    ranked_rows = (replace(one, option=replace(one.option, rank=place, marks=())) for place, one in enumerate(rows, 1))
    return WorkComparison(job, work, tuple(ranked_rows), tuple(unable))


def _reason(code: str, sold: list[Offer], work: Workload) -> str:
    """Say why none of the offers of a GPU will do: for memory, what the largest number of them lacks."""
    largest = max(sold, key=lambda one: one.gpu_count)
    fit = run_time(work, largest.gpu, largest.gpu_count, Decimal(1)).fit
    if code == Obstacle.VRAM and fit is not None:
        return fit.sentence
    said = EXCLUSIONS[code].removeprefix("{n} skipped: ")
    return f"{said[0].upper()}{said[1:]}"
