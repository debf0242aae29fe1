"""Estimate tokens per second of a run on given GPUs: expected, and a range that holds four of five runs.

Training: the physical times of `bot.rules.sizing.training`; text generation: those of `sizing.decoding`. Both are
weighed by fitted coefficients and corrected by the effects of stack, year, GPU and method that published runs show
(`sizing.throughput_fitted`). This installation's own finished runs correct the result: on the logarithm, with a normal
prior whose width is the range, runs of the same GPU and stack count most and runs of the same stack on other GPUs less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from bot.rules.sizing import decoding, media
from bot.rules.sizing import throughput_data as table
from bot.rules.sizing import throughput_fitted as fitted
from bot.rules.sizing.groups import Group
from bot.rules.sizing.host_speed import AS_SOLD, HostSpeed
from bot.rules.sizing.layouts import likely
from bot.rules.sizing.media_models import MediaModel
from bot.rules.sizing.throughput_features import LAST_YEAR, features, group, is_data_center
from bot.rules.sizing.training import TERMS, flops_per_token, machine, offload_s, optimizer_s, peak_flops, terms
from bot.rules.sizing.unsaid import unknown
from bot.rules.sizing.vram import Fit, MemoryLayout, fit
from bot.rules.sizing.workload import Architecture, WorkKind, Workload, architecture
from bot.rules.values.phrases import plural
from ledger.kernel import money
from providers.gpus.table import GpuModel


@dataclass(frozen=True, slots=True)
class Throughput:
    """Hold tokens per second over all GPUs. `mfu` is the share of the peak that the model's own FLOPs take.

    `basis` says in one sentence what the numbers rest on, `sigma` is the width of the range on the logarithm.
    `replicas` are the copies of a served model that share the GPUs. `unit` is what is counted: tokens, or the images or
    seconds of sound of a model that makes or reads those.
    """

    expected: float
    low: float
    high: float
    mfu: float
    sentence: str
    basis: str
    sigma: float
    plan: MemoryLayout
    replicas: int = 1
    unit: str = "tokens"


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """Hold what a finished run of this installation achieved, beside what the rules predicted without any runs."""

    gpu: str
    stack: str | None
    predicted_tokens_s: float
    measured_tokens_s: float


@dataclass(frozen=True, slots=True)
class RunHours:
    """Hold how long the work of a run takes: the median and the mean of all runs, and the time at the low rate.

    A rate that is as likely half as double makes the mean of the times longer than their median.
    """

    median: Decimal
    expected: Decimal
    worst: Decimal


def tokens_per_s(
    work: Workload,
    gpu: GpuModel,
    count: int,
    *,
    runs: Iterable[FinishedRun] = (),
    layout: Fit | None = None,
    host: HostSpeed = AS_SOLD,
) -> Throughput | None:
    """Estimate the throughput of `work` on `count` of `gpu`; None when `missing` names a reason.

    `layout` is a memory fit whose plan is used as it is; without one, the fastest layout that people would use: for a
    served model, as many copies beside each other as are fastest. `host` says how much slower its machine is.
    """
    own = tuple(runs)
    if work.medium is not None:
        return _of_media(work, work.medium, gpu, count, layout, host)
    whole = _on_all(work, gpu, count, own, layout, host)
    if whole is None or work.trains or layout is not None:
        return whole
    return max((whole, *_replicated(work, gpu, count, own, host)), key=lambda found: found.expected)


def _replicated(
    work: Workload, gpu: GpuModel, count: int, runs: tuple[FinishedRun, ...], host: HostSpeed
) -> Iterator[Throughput]:
    """Yield the throughput of two or more copies of a served model, each on its part of the GPUs and the sequences."""
    for replicas in range(2, min(count, work.concurrency or count) + 1):
        share = work if work.concurrency is None else replace(work, concurrency=work.concurrency // replicas)
        each = count // replicas
        if count % replicas or not fit(share, gpu, each).possible:
            continue
        for one in filter(None, [_on_all(share, gpu, each, runs, None, host)]):
            expected = replicas * one.expected
            yield replace(
                one,
                expected=expected,
                low=replicas * one.low,
                high=replicas * one.high,
                sentence=_sentence(work, gpu, count, expected, one.high / one.expected, one.mfu),
                basis=f"{one.basis} {replicas} copies of the model share the GPUs.",
                replicas=replicas,
            )


def _on_all(
    work: Workload,
    gpu: GpuModel,
    count: int,
    runs: tuple[FinishedRun, ...],
    layout: Fit | None,
    host: HostSpeed,
) -> Throughput | None:
    """Estimate the throughput of a run that shares one model over all GPUs."""
    shape = architecture(work)
    if shape is None or missing(work, gpu) is not None:
        return None
    rate, plan = physical(work, shape, gpu, count, layout=layout, host=host)
    mean, sigma, used = posterior(gpu.name, work.stack, runs, _spread(work, shape, gpu, count, plan))
    rate = min(rate * math.exp(_effect(work, shape, gpu, count, plan)), most(work, shape, gpu, count, host)) * math.exp(
        mean
    )
    wide = math.exp(table.RANGE_SIGMAS * sigma)
    peak = (peak_flops(gpu, work.number_format) or math.inf) * count
    mfu = rate * flops_per_token(work, shape) / peak
    return Throughput(
        expected=rate,
        low=rate / wide,
        high=rate * wide,
        mfu=mfu,
        sentence=_sentence(work, gpu, count, rate, wide, mfu),
        basis=_basis(work, gpu, used),
        sigma=sigma,
        plan=plan,
    )


def _of_media(
    work: Workload, model: MediaModel, gpu: GpuModel, count: int, layout: Fit | None, host: HostSpeed
) -> Throughput | None:
    """Estimate the rate of a model of images or sound, of which each GPU has a copy."""
    if missing(work, gpu) is not None:
        return None
    plan = (layout or fit(work, gpu, count)).plan
    rate, sigma = media.units_per_s(work, model, gpu, count, plan, host), media.sigma(work, model)
    wide = math.exp(table.RANGE_SIGMAS * sigma)
    sentence = _sentence(replace(work, kind=WorkKind.SERVING), gpu, count, rate, wide, 0.0)
    sentence = sentence.replace("tokens", model.unit)
    return Throughput(
        rate, rate / wide, rate * wide, 0.0, sentence, media.basis(model), sigma, plan, replicas=count, unit=model.unit
    )


def most(work: Workload, shape: Architecture, gpu: GpuModel, count: int, host: HostSpeed = AS_SOLD) -> float:
    """Return the tokens per second that large matrix multiplications alone would make possible."""
    attainable = table.MOST_OF_PEAK * table.ATTAINABLE.get(gpu.name, 1.0) * host.multiplying_share
    return attainable * (peak_flops(gpu, work.number_format) or math.inf) * count / flops_per_token(work, shape)


def physical(
    work: Workload,
    shape: Architecture,
    gpu: GpuModel,
    count: int,
    *,
    layout: Fit | None = None,
    host: HostSpeed = AS_SOLD,
) -> tuple[float, MemoryLayout]:
    """Return tokens per second by the weighed physical times alone, and the layout that they are for."""
    plans = likely(work, shape, gpu, count) if layout is None else (layout.plan,)
    rates = ((_rate(work, shape, gpu, count, plan, host), plan) for plan in plans)
    return max(rates, key=lambda found: found[0])


def _rate(work: Workload, shape: Architecture, gpu: GpuModel, count: int, plan: MemoryLayout, host: HostSpeed) -> float:
    if not work.trains:
        return decoding.tokens_per_s(work, shape, gpu, count, plan, fitted.DECODING_TERMS, host)
    return count / (predicted_s(work, shape, gpu, count, plan, host) or math.inf)


def _effect(work: Workload, shape: Architecture, gpu: GpuModel, count: int, plan: MemoryLayout) -> float:
    """Return the sum of the effects that published runs show for such a run, on the logarithm."""
    effects = fitted.TRAINING_EFFECTS if work.trains else fitted.DECODING_EFFECTS
    found = features(work, shape, gpu, count, plan, LAST_YEAR)
    types = fitted.TRAINING_GPUS if work.trains else fitted.DECODING_GPUS
    known = (_stack_effect(work, gpu) or 0.0) + types.get(gpu.name, 0.0)
    return known + sum(effects[name] * value for name, value in found.items())


def missing(work: Workload, gpu: GpuModel) -> str | None:
    """Say why no throughput can be computed, as a sentence; None when it can."""
    if architecture(work) is None:
        return unknown(work)[0]
    if gpu.peak_bf16_tflops is None or gpu.bandwidth_gb_s is None:
        return f"No peak rate of {gpu.name} is published, so its throughput is not estimated."
    return None


def predicted_s(
    work: Workload,
    shape: Architecture,
    gpu: GpuModel,
    count: int,
    plan: MemoryLayout,
    host: HostSpeed = AS_SOLD,
) -> float | None:
    """Return the seconds that one GPU spends on one training token under `plan`, before stack and own runs count."""
    on = machine(gpu, count, work.number_format, host)
    if on is None:
        return None
    times = terms(work, shape, on, count, plan, fitted.EXPONENTS)
    seconds = sum(fitted.TRAINING_TERMS[name] * time for name, time in zip(TERMS, times, strict=True))
    return seconds + optimizer_s(work, shape, on, count, plan) + offload_s(work, shape, count, plan)


def posterior(gpu: str, stack: str | None, runs: Iterable[FinishedRun], prior: float) -> tuple[float, float, int]:
    """Return (mean, deviation, runs used) of the logarithm of measured over predicted, for one GPU and stack.

    Normal prior around 0 with deviation `prior`; a run of the same GPU and stack is seen with the spread between runs,
    a run of the same stack on another GPU with the spread between GPUs on top. Runs without a usable number and runs of
    other stacks are ignored.
    """
    weight, total, used = prior**-2, 0.0, 0
    for run in runs:
        usable = 0 < run.measured_tokens_s < math.inf and 0 < run.predicted_tokens_s < math.inf
        if run.stack != stack or not usable:
            continue
        other = 0.0 if run.gpu == gpu else table.SPREAD_OTHER_GPU
        certainty = 1 / (table.SPREAD_RUN**2 + other**2)
        total += certainty * (math.log(run.measured_tokens_s) - math.log(run.predicted_tokens_s))
        weight += certainty
        used += 1
    # The spread from host to host stays, however many runs there are.
    return total / weight, max(weight**-0.5, min(table.SPREAD_HOST, prior)), used


def run_hours(work: Workload, found: Throughput | None) -> RunHours | None:
    """Return how long all tokens take, evaluation included.

    None when the tokens or the throughput are not known, or it would take a century.
    """
    tokens = work.total_tokens
    if tokens is None or found is None or not tokens / found.low < 100 * 365 * 86_400:
        return None
    mean_rate = found.expected / math.exp(found.sigma**2 / 2)
    median, expected, worst = (_hours(work, tokens, rate) for rate in (found.expected, mean_rate, found.low))
    return RunHours(median, expected, max(worst, expected))


def hours_at(median_h: Decimal, found: Throughput) -> RunHours:
    """Return how long a run takes whose work would be done in `median_h` at the expected rate."""
    expected = money.half_up(median_h * Decimal(math.exp(found.sigma**2 / 2)), 6)
    return RunHours(median_h, expected, max(money.half_up(median_h * Decimal(found.expected / found.low), 6), expected))


def _hours(work: Workload, tokens: int, rate: float) -> Decimal:
    return money.half_up(Decimal(tokens) / Decimal(rate) / 3600 * work.evaluated, 6)


def _spread(work: Workload, shape: Architecture, gpu: GpuModel, count: int, plan: MemoryLayout) -> float:
    """Return the deviation of the logarithm: what leaving stacks out showed, and further doubts added in squares."""
    here = group(work, shape, gpu)
    measured = fitted.SPREADS[here]
    known = fitted.OWN_SPREADS.get(work.stack or "") if here is Group.DENSE else None
    doubts = [
        known or (measured.other_stack if _stack_effect(work, gpu) is None else measured.known_stack),
        0.0 if gpu.name in fitted.GPUS else table.SPREAD_OTHER_TYPE,
        table.SPREAD_NO_NVLINK if count > 1 and gpu.name not in {*table.NVLINK_GB_S, *fitted.GPUS} else 0.0,
        table.SPREAD_OFFLOAD if plan.offload else 0.0,
    ]
    return math.hypot(*doubts)


def _stack_effect(work: Workload, gpu: GpuModel) -> float | None:
    """Return the effect of the named stack; None without a name, or where only unlike hardware was measured with it."""
    stacks = fitted.TRAINING_STACKS if work.trains else fitted.DECODING_STACKS
    name = work.stack or ""
    return stacks.get(name) if is_data_center(gpu) in fitted.MEASURED_ON.get(name, ()) else None


def _sentence(work: Workload, gpu: GpuModel, count: int, rate: float, wide: float, mfu: float) -> str:
    where = plural(count, gpu.name) if count == 1 else f"{count} {gpu.name}"
    share = f", {mfu:.0%} of the peak" if work.trains else ""
    return f"{say(rate)} tokens/s on {where} ({say(rate / wide)} to {say(rate * wide)}){share}."


def say(rate: float) -> str:
    """Write a rate as people read it: `12,300`, `850`, `4.2`; at most three digits are significant."""
    if rate >= 1000:
        digits = 10 ** (int(math.log10(rate)) - 2)
        return f"{round(rate / digits) * digits:,}"
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _basis(work: Workload, gpu: GpuModel, used: int) -> str:
    what = "training runs" if work.trains else "generation rates"
    here = ", this GPU among them" if gpu.name in fitted.GPUS else f"; carried over to {gpu.name} by its data sheet"
    known = f"Fitted on {fitted.ROWS[work.trains]} published {what}{here}"
    name = "training stack" if work.trains else "server"
    stack = "" if _stack_effect(work, gpu) is not None else f"; the {name} is not known"
    own = f"; corrected by {plural(used, 'run')} of this installation" if used else ""
    return f"{known}{stack}{own}."
