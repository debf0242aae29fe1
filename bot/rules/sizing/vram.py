"""Judge whether a run fits into the memory of its GPUs, and with which layout.

Weights, gradients, optimizer, activations and KV cache are counted. Bytes per parameter follow ZeRO (arXiv:1910.02054):
mixed-precision Adam holds 16 (2 for weights, 2 for gradients, 12 for the 32-bit copy and the two moments), of which
each ZeRO stage shares more between the GPUs; `sizing.optimizers` has the bytes of other optimizers. Activations follow
arXiv:2205.05198 without dropout and without stored attention scores (flash attention): for a classic layer 32 bytes per
token and unit of width, or the layer's input alone (2 bytes) when they are recomputed. QLoRA stores 4.127 bits per
weight (arXiv:2305.14314, appendix: double quantization). GB are GiB here, as the makers' memory sizes are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from bot.rules.sizing.media_models import MediaModel
from bot.rules.sizing.optimizers import state_bytes
from bot.rules.sizing.unsaid import unknown
from bot.rules.sizing.workload import Architecture, Precision, Sharding, WorkKind, Workload, architecture
from bot.rules.values.phrases import plural
from providers.gpus.table import GpuModel

GIB = float(2**30)
#: Share of the nominal memory that PyTorch reports as a GPU's capacity: 79.15 of 80 GB on A100, 39.59 of 40, 23.65 of
#: 24 on RTX 4090. Cards that keep error correction in GDDR memory report less: 22.06 of 24 on A10G, 44.4 of 48 on L40S.
USABLE = 0.985
USABLE_ECC = 0.92
_ECC_IN_MEMORY = frozenset(["T4", "A2", "A10", "A10G", "A16", "A40", "L4", "L40", "L40S"])
#: Above this share of the memory a run may still fail: fragmentation and longer samples take the rest.
TIGHT = 0.97
#: The CUDA context, the communication buffers and the allocator's slack, in GB per GPU.
RUNTIME_GB = 0.6
#: Tokens of one forward and backward pass beyond which a larger micro batch brings no more speed.
MICRO_TOKENS = 32_768
#: Prompts are read in pieces of this many tokens.
PREFILL_TOKENS = 2048
LORA_RANK = 16
#: The most sequences that servers take into one step unless they are told another number (vLLM: max_num_seqs).
SERVED_AT_ONCE = 256

_WEIGHT_BYTES = {
    Precision.FP32: 4.0,
    Precision.TF32: 4.0,
    Precision.FP8: 1.0,
    Precision.INT8: 1.0,
    Precision.INT4: 4.127 / 8,
}
#: Blocks of 32 numbers of 4 bits share a scale of 8 (arXiv:2310.10537; gpt-oss, arXiv:2508.10925: 4.25 bits).
MXFP4_BYTES = 4.25 / 8
_SHORT_BYTES = 2
#: Matrices of a gated feed-forward block.
_GATED = 3


class FitVerdict(StrEnum):
    FITS = "fits"
    FITS_WITH = "fits_with"
    DOES_NOT_FIT = "does_not_fit"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Describe how a run is laid out over its GPUs.

    `offload` keeps the optimizer in the host's memory; `weights` is the format of frozen or served weights.
    """

    kind: WorkKind
    sharding: Sharding = Sharding.DDP
    checkpointing: bool = False
    micro_batch: int = 1
    offload: bool = False
    weights: Precision = Precision.BF16


@dataclass(frozen=True, slots=True)
class Part:
    """Hold one share of the memory of one GPU, in GB."""

    name: str
    gb: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Hold the verdict for one GPU model and number.

    `needs_gb` and `has_gb` are per GPU; `with_what` is what the run needs beyond what was asked; `utilisation` is the
    share of the memory in use. Without a known size all numbers are 0.
    """

    verdict: FitVerdict
    needs_gb: float
    has_gb: float
    with_what: tuple[str, ...]
    utilisation: float
    sentence: str
    parts: tuple[Part, ...]
    plan: MemoryLayout

    @property
    def possible(self) -> bool:
        """Whether the run can be tried: it fits, or nobody can know."""
        return self.verdict is not FitVerdict.DOES_NOT_FIT

    @property
    def tight(self) -> bool:
        """Whether the run fits with so little memory left that it may fail all the same."""
        return self.possible and self.utilisation > TIGHT


def usable_gb(gpu: GpuModel) -> float:
    """Return what a program can hold in one GPU, in GB."""
    return gpu.memory_gb * (USABLE_ECC if gpu.name in _ECC_IN_MEMORY else USABLE)


def fit(work: Workload, gpu: GpuModel, count: int) -> Fit:
    """Return the first layout that fits, from the one that costs no speed to the one that costs most.

    One that leaves some memory comes before one that is tight.
    Only layouts of what was asked are tried: another method or another number format is another run. What was said
    about sharding, checkpointing and the micro batch holds first; only when that does not fit, a smaller micro batch is
    tried. More memory never turns a fit into a miss, since no layout depends on the memory.
    """
    shape, has = architecture(work), usable_gb(gpu)
    asked = MemoryLayout(work.kind, weights=_asked_format(work))
    if shape is None:
        return Fit(FitVerdict.UNKNOWN, 0.0, has, (), 0.0, unknown(work)[0], (), asked)
    if count < 1:
        raise ValueError("a run needs at least one GPU")
    tried: list[tuple[MemoryLayout, tuple[Part, ...]]] = []
    for plan in _layouts(work, count):
        tried.append((plan, parts(work, shape, count, plan)))
        if _sum(tried[-1][1]) <= has * TIGHT:
            break
    # The last one leaves some memory where any does; else the first that fits is taken, tight as it is.
    fitting = [plan for plan, found in tried if _sum(found) <= has]
    if fitting:
        roomy = _sum(tried[-1][1]) <= has * TIGHT
        grown = _grown(work, shape, count, tried[-1][0] if roomy else fitting[0], has)
        return _fits(work, gpu, count, grown, parts(work, shape, count, grown))
    plan, found = min(tried, key=lambda one: _sum(one[1]))
    needs = _sum(found)
    most = max(found, key=lambda part: part.gb)
    sentence = (
        f"Does not fit: even with {_listed(beyond(work, plan)) or 'nothing else in memory'} it needs {needs:,.1f} GB "
        f"on each {gpu.name}, which can hold {has:,.1f} GB; the largest share is {most.name} with {most.gb:,.1f} GB."
    )
    return Fit(FitVerdict.DOES_NOT_FIT, needs, has, beyond(work, plan), needs / has, sentence, found, plan)


def choices(work: Workload, gpu: GpuModel, count: int) -> tuple[MemoryLayout, ...]:
    """Return every layout of the work as asked for that fits and is not tight, each with its largest micro batch.

    The caller picks the fastest. The layout of `fit` comes alone where there are none or there is nothing to choose.
    """
    shape, has = architecture(work), usable_gb(gpu)
    first = fit(work, gpu, count).plan
    if shape is None or not work.trains or first.offload:
        return (first,)
    found = [
        _grown(work, shape, count, plan, has)
        for plan in _trainings(work, count, first.micro_batch if work.micro_batch else 1)
        if not plan.offload and _sum(parts(work, shape, count, plan)) <= has * TIGHT
    ]
    return tuple(dict.fromkeys(found)) or (first,)


def _fits(work: Workload, gpu: GpuModel, count: int, plan: MemoryLayout, found: tuple[Part, ...]) -> Fit:
    needs, has, extra = _sum(found), usable_gb(gpu), beyond(work, plan)
    verdict = FitVerdict.FITS_WITH if extra else FitVerdict.FITS
    where = plural(count, gpu.name) if count == 1 else f"each of {count} {gpu.name}"
    opening = f"Fits with {_listed(extra)}" if extra else "Fits"
    sentence = f"{opening}: {needs:,.1f} of {has:,.1f} GB on {where} ({needs / has:.0%})."
    if needs > has * TIGHT:
        sentence += " That is tight: a longer sample may not fit."
    return Fit(verdict, needs, has, extra, needs / has, sentence, found, plan)


def _sum(found: tuple[Part, ...]) -> float:
    return sum(part.gb for part in found)


def _listed(words: tuple[str, ...]) -> str:
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


# ── layouts ──────────────────────────────────────────────────────────────────────────────────────


def _asked_format(work: Workload) -> Precision:
    if work.kind is WorkKind.QLORA:
        return Precision.INT4
    return Precision.BF16 if work.trains else work.number_format


def _layouts(work: Workload, count: int) -> Iterator[MemoryLayout]:
    """Yield every layout worth trying for `count` GPUs, cheapest in speed first."""
    if not work.trains:
        yield MemoryLayout(work.kind, weights=work.number_format)
        return
    for micro in dict.fromkeys((work.micro_batch or 1, 1)):
        yield from _trainings(work, count, micro)


def _trainings(work: Workload, count: int, micro: int) -> Iterator[MemoryLayout]:
    kind = work.kind
    shardings = (Sharding.DDP, Sharding.ZERO3) if work.adapts else tuple(Sharding)
    said = [work.sharding] if work.sharding is not None else [*shardings] if count > 1 else [Sharding.DDP]
    recompute = [work.checkpointing] if work.checkpointing is not None else [False, True]
    weights = Precision.INT4 if kind is WorkKind.QLORA else Precision.BF16
    for checkpointing in recompute:
        for sharding in said:
            yield MemoryLayout(kind, sharding, checkpointing, micro, weights=weights)
    if not work.adapts:
        yield MemoryLayout(kind, said[-1], recompute[-1], micro, offload=True, weights=weights)


def _grown(work: Workload, shape: Architecture, count: int, plan: MemoryLayout, has: float) -> MemoryLayout:
    """Grow the micro batch of `plan` to the largest that fits, unless one was said."""
    if not work.trains or work.micro_batch is not None:
        return plan
    most = min(max(work.batch // count, 1), max(MICRO_TOKENS // work.sequence, 1))
    while plan.micro_batch * 2 <= most:
        larger = replace(plan, micro_batch=plan.micro_batch * 2)
        if _sum(parts(work, shape, count, larger)) > has * TIGHT:
            break
        plan = larger
    return plan


_STAGE = {
    Sharding.ZERO1: "ZeRO stage 1 (shared optimizer)",
    Sharding.ZERO2: "ZeRO stage 2 (shared optimizer and gradients)",
    Sharding.ZERO3: "ZeRO stage 3 (everything shared, as FSDP does)",
}


def beyond(work: Workload, plan: MemoryLayout) -> tuple[str, ...]:
    """Say what `plan` uses beyond what was asked for."""
    found = []
    if work.sharding is None and plan.sharding in _STAGE:
        found.append(_STAGE[plan.sharding])
    if plan.checkpointing and not work.checkpointing:
        found.append("gradient checkpointing")
    if work.micro_batch is not None and plan.micro_batch < work.micro_batch:
        found.append(f"a micro batch of {plan.micro_batch}")
    if plan.offload:
        found.append("the optimizer in the host's memory")
    return tuple(found)


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────


def parts(work: Workload, shape: Architecture, count: int, plan: MemoryLayout) -> tuple[Part, ...]:
    """Return the memory of one of `count` GPUs under `plan`, part by part."""
    if not work.trains:
        amounts = _served(work, shape, count, plan) if shape.medium is None else _made(work, shape.medium, plan)
    else:
        adapts = plan.kind in (WorkKind.LORA, WorkKind.QLORA)
        states = (_adapted if adapts else _states)(work, shape, count, plan)
        amounts = {**states, "activations": _activations(work, shape, plan)}
    found = (Part(name, size / GIB) for name, size in amounts.items() if size)
    return (*found, Part("runtime", RUNTIME_GB))


def _states(work: Workload, shape: Architecture, count: int, plan: MemoryLayout) -> dict[str, float]:
    params = float(shape.total_params)
    stage = [*Sharding].index(plan.sharding)
    share = [1 / count if stage > level else 1.0 for level in range(3)]
    gathered = 2 * _layer_params(shape) + shape.head_params if plan.sharding is Sharding.ZERO3 else 0.0
    return {
        "weights": params * _SHORT_BYTES * share[2] + gathered * _SHORT_BYTES,
        # ZeRO-Offload sends each layer's gradients to the host while it computes the next (arXiv:2101.06840).
        "gradients": (2 * _layer_params(shape) if plan.offload else params * share[1]) * _SHORT_BYTES,
        "optimizer": 0.0 if plan.offload else shape.optimizer_bytes(work.optimizer) * share[0],
    }


def _adapted(work: Workload, shape: Architecture, count: int, plan: MemoryLayout) -> dict[str, float]:
    layer = 8 * shape.width + shape.mlp_matrices * (shape.width + shape.mlp_width)
    learned = float(LORA_RANK) * shape.layers * layer
    adapters = learned * 2 * _SHORT_BYTES + state_bytes(work.optimizer, learned)
    rest = shape.total_params - shape.outer_params
    frozen = rest * weight_bytes(plan.weights) + shape.outer_params * _SHORT_BYTES
    if plan.sharding is Sharding.ZERO3:
        frozen = frozen / count + 2 * _layer_params(shape) * _SHORT_BYTES
        adapters = adapters / count
    return {"frozen weights": frozen, "adapters": adapters}


def _layer_params(shape: Architecture) -> float:
    return shape.body_params / shape.layers


def weight_bytes(precision: Precision) -> float:
    """Return the bytes that one stored weight takes."""
    return _WEIGHT_BYTES.get(precision, float(_SHORT_BYTES))


def _activations(work: Workload, shape: Architecture, plan: MemoryLayout) -> float:
    """Count what the backward pass needs from the forward pass, and the logits: 16-bit, 32-bit copy, gradient.

    A gated feed-forward block keeps its gate before and after the activation, the other branch and their product; its
    models normalize in 32 bits whatever the format (Llama's RMSNorm), which keeps both inputs of a layer once more.
    """
    size = 4 if work.number_format in (Precision.FP32, Precision.TF32) else _SHORT_BYTES
    tokens = float(plan.micro_batch * work.sequence)
    attention = shape.head_width * (2 * shape.heads + 2 * shape.kv_heads)
    gated = shape.mlp_matrices == _GATED
    inner = shape.mlp_width * (_GATED + 1 if gated else shape.mlp_matrices)
    layer = size * (4 * shape.width + attention + inner) + (8 * shape.width if gated else 0)
    kept = shape.layers * size * shape.width + layer if plan.checkpointing else shape.layers * layer
    return tokens * (kept + shape.vocab * (2 * size + 4))


def _served(work: Workload, shape: Architecture, count: int, plan: MemoryLayout) -> dict[str, float]:
    at_once = work.concurrency or 1
    buffers = PREFILL_TOKENS * _SHORT_BYTES * (4 * shape.width + 2 * shape.mlp_width) + 4 * at_once * shape.vocab
    return {
        "weights": stored_bytes(shape, plan.weights) / count,
        "KV cache": kv_bytes(shape, work.sequence, count) * at_once / count,
        "buffers": buffers / count,
    }


def _made(work: Workload, model: MediaModel, plan: MemoryLayout) -> dict[str, float]:
    """Count what one GPU holds to make images or read sound: each has a copy of its own."""
    each = model.working_gb + model.decoding_gb
    area = 1.0 if model.sound else work.image_area
    return {
        "weights": model.network_params * weight_bytes(plan.weights) + float(model.other_params * _SHORT_BYTES),
        "windows" if model.sound else "images": each * area * work.at_once * GIB,
    }


def kv_bytes(shape: Architecture, tokens: float, count: int = 1) -> float:
    """Return the bytes of keys and values, in 16 bits, that a sequence of so many tokens leaves on `count` GPUs.

    Heads are split over the GPUs. A latent vector has no heads, so each GPU keeps all of it (vLLM, "Data parallel
    deployment": latent attention duplicates the cache over tensor parallel ranks).
    """
    whole = (shape.layers - shape.local_layers) * tokens + shape.local_layers * min(tokens, shape.window)
    return _SHORT_BYTES * shape.cached_numbers * whole * (count if shape.latent else 1)


def stored_bytes(shape: Architecture, precision: Precision) -> float:
    """Return the bytes of all weights in a format; MXFP4 is a format of experts, and the rest has 16 bits."""
    if precision is not Precision.MXFP4:
        return shape.total_params * weight_bytes(precision)
    return shape.expert_params * MXFP4_BYTES + (shape.total_params - shape.expert_params) * _SHORT_BYTES


def most_at_once(work: Workload, shape: Architecture, gpu: GpuModel, count: int, plan: MemoryLayout) -> int:
    """Return how many sequences can be served at once: as asked for, else as many as the memory left over holds."""
    if work.concurrency is not None:
        return work.concurrency
    one = _sum(parts(work, shape, count, plan))
    each = (kv_bytes(shape, work.sequence, count) + 4 * shape.vocab) / count / GIB
    return min(max(int((usable_gb(gpu) - one) / each) + 1, 1), SERVED_AT_ONCE)
