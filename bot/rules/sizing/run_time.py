"""Compute how long a run takes on a number of GPUs, whether it fits, and what it transfers and stores.

Where the model, the tokens or the GPU are not known, the hours that somebody gave are used instead and `unknown` says
what could not be computed; nothing is invented.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from bot.rules.sizing.data_source import DataSource
from bot.rules.sizing.host_speed import AS_SOLD, HostSpeed
from bot.rules.sizing.start_times import NO_START, StartTimes
from bot.rules.sizing.throughput import FinishedRun, RunHours, Throughput, missing, run_hours, tokens_per_s
from bot.rules.sizing.unsaid import unknown
from bot.rules.sizing.vram import Fit, fit, stored_bytes
from bot.rules.sizing.workload import Architecture, WorkKind, Workload, architecture
from providers.gpus.table import GPUS

_ZERO = Decimal(0)
_HOUR_S = 3600
#: The share of a whole checkpoint that a checkpoint of adapters has, and the bytes of one weight in it.
_ADAPTER_SHARE = Decimal("0.01")
_WEIGHT_BYTES = 2
_GB = Decimal(10) ** 9
#: The old checkpoint is kept until the new one is written.
KEPT_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class RunTime:
    """Describe one run on one number of one GPU.

    `known` says whether `hours` follow from the work or were given. `checkpoint_gb` is 0 where nothing is learned;
    `fetched_gb` are data and weights that are fetched once. `goal_h` is when it should be done, and `trains`
    tells whether it changes weights. Of `fetched_gb`, `data_gb` come from `data`; `beside` says that the machine reads
    these in place instead. `evaluated` is the factor by which evaluation makes the run longer. `start` is what own
    sessions say about its start and its losses.
    """

    hours: RunHours
    known: bool
    throughput: Throughput | None
    fit: Fit | None
    checkpoint_gb: Decimal
    every_h: Decimal | None
    fetched_gb: Decimal
    goal_h: Decimal | None
    trains: bool
    unknown: tuple[str, ...]
    data: DataSource | None = None
    data_gb: Decimal = _ZERO
    beside: bool = False
    evaluated: Decimal = Decimal(1)
    start: StartTimes = NO_START

    def at(self, cloud: str, region: str) -> RunTime:
        """Return the run on a machine there: data that lie in the same data center are not fetched."""
        if self.data is None or not self.data.beside(cloud, region):
            return self
        return replace(self, fetched_gb=self.fetched_gb - self.data_gb, beside=True)

    @property
    def source_usd(self) -> Decimal:
        """Return what the data's store charges for sending them once."""
        return _ZERO if self.data is None or self.beside else self.data.leaving_usd(self.data_gb)

    @property
    def fits(self) -> bool:
        """Whether the run can be tried: it fits, or nobody can know."""
        return self.fit is None or self.fit.possible


def run_time(
    work: Workload,
    gpu_name: str,
    count: int,
    given_h: Decimal,
    runs: tuple[FinishedRun, ...] = (),
    host: HostSpeed = AS_SOLD,
) -> RunTime:
    """Return the time of `work` on `count` of a GPU in such a host; `given_h` hours where it cannot be computed."""
    gpu = GPUS.get(gpu_name)
    layout = None if gpu is None else fit(work, gpu, count)
    found = None
    if gpu is not None and layout is not None and layout.possible:
        found = tokens_per_s(work, gpu, count, runs=runs, host=host)
        if found is not None and found.replicas > 1:
            layout = fit(work, gpu, count // found.replicas)
    hours = run_hours(work, found)
    return RunTime(
        hours=hours or RunHours(given_h, given_h, given_h),
        known=hours is not None,
        throughput=found,
        fit=layout,
        checkpoint_gb=checkpoint_gb(work),
        every_h=None if work.checkpoint_every_s is None else Decimal(work.checkpoint_every_s) / _HOUR_S,
        fetched_gb=_fetched_gb(work),
        goal_h=work.goal_hours,
        trains=work.trains,
        unknown=() if hours is not None else _unknown(work, gpu_name),
        data=work.data,
        data_gb=work.dataset_gb or _ZERO,
        evaluated=work.evaluated,
    )


def finished_run(work: Workload, gpu_name: str, count: int, tokens_s: Decimal) -> FinishedRun:
    """Record what a run achieved beside what the rules alone predict for it.

    ValueError with a sentence where they predict nothing.
    """
    if not tokens_s.is_finite() or tokens_s <= 0:
        raise ValueError("The rate of a run is above zero, such as 12300 tokens per second.")
    gpu = GPUS.get(gpu_name)
    if work.medium is not None:
        raise ValueError(f"Rates of {work.medium.name} are not learned from your runs, only those of text models.")
    if gpu is None:
        raise ValueError(f"{gpu_name} is not a GPU whose rates are known here.")
    layout = fit(work, gpu, count)
    if not layout.possible:
        raise ValueError(layout.sentence)
    predicted = tokens_per_s(work, gpu, count)
    if predicted is None:
        raise ValueError(missing(work, gpu))
    return FinishedRun(gpu_name, work.stack, predicted.expected, float(tokens_s))


def _unknown(work: Workload, gpu_name: str) -> tuple[str, ...]:
    gpu = GPUS.get(gpu_name)
    about_gpu = f"{gpu_name} is not a GPU whose rates are known here." if gpu is None else missing(work, gpu)
    return tuple(dict.fromkeys((*unknown(work), *([about_gpu] if about_gpu else []))))


def checkpoint_gb(work: Workload) -> Decimal:
    """Return the GB of one checkpoint: said, or 2 bytes per weight and the optimizer, a hundredth of that for adapters.

    0 where none is written.
    """
    if work.checkpoint_gb is not None:
        return work.checkpoint_gb
    shape = architecture(work)
    if shape is None or not work.trains:
        return _ZERO
    whole = shape.total_params * _WEIGHT_BYTES / _GB + Decimal(int(shape.optimizer_bytes(work.optimizer))) / _GB
    return whole * _ADAPTER_SHARE if work.adapts else whole


def _fetched_gb(work: Workload) -> Decimal:
    shape = architecture(work)
    weights = _ZERO if shape is None or work.kind is WorkKind.TRAINING else weights_gb(shape)
    return weights + (work.dataset_gb or _ZERO)


def weights_gb(shape: Architecture) -> Decimal:
    """Return the GB of a model's weights as they are published."""
    return Decimal(int(stored_bytes(shape, shape.stored))) / _GB
