"""Describe what a run computes: the model, the data and how it is trained or served, or only its hours.

Nothing is invented: what was not said stays None, and `unknown` says what an estimate cannot know because of it. The
only numbers that are filled in are a model's shape (`sizing.model_shapes`) and the classic proportions of a transformer
(arXiv:2001.08361: a feed-forward width of four times the width, 12 x layers x width^2 weights in the layers).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from bot.rules.sizing.data_source import DataSource
from bot.rules.sizing.media_models import MediaModel, media_model
from bot.rules.sizing.model_shapes import ModelShape, model, typical
from bot.rules.sizing.optimizers import Optimizer, state_bytes

#: The vocabulary of GPT-2, for models of which only the size is known.
PLAIN_VOCAB = 50257
#: Heads of a model of which only the width is known are this wide, as in nearly all published models above 1B.
PLAIN_HEAD_WIDTH = 128
#: Experts that a token passes in a mixture of which only the sizes are known, as in most that are published.
PLAIN_ROUTED = 8
#: What a run assumes when nobody said it; every use is an assumption that the plan shows.
PLAIN_SEQ = 2048
PLAIN_BATCH_TOKENS = 524_288
PLAIN_RESOLUTION = 1024
#: Windows of sound that programs read at once: between the 8 of faster-whisper and the 24 of insanely-fast-whisper.
PLAIN_WINDOWS = 16
#: The share of a step that its forward pass takes: 2 of 6 FLOPs for each weight and token (arXiv:2001.08361), and 2 of
#: 4 where only adapters are trained, because the frozen weights need no gradients.
_FORWARD_SHARE, _FORWARD_SHARE_OF_ADAPTERS = Decimal(1) / 3, Decimal(1) / 2


class WorkKind(StrEnum):
    TRAINING = "training"
    FINETUNE = "finetune"
    LORA = "lora"
    QLORA = "qlora"
    SERVING = "serving"
    BATCH = "batch"


class Precision(StrEnum):
    """Name how numbers are stored and multiplied; `amp_` keeps sums, norms and gradient exchange in 32 bits."""

    FP32 = "fp32"
    TF32 = "tf32"
    AMP_BF16 = "amp_bf16"
    BF16 = "bf16"
    AMP_FP16 = "amp_fp16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"
    MXFP4 = "mxfp4"


class Sharding(StrEnum):
    """Name what data-parallel GPUs share: nothing, or optimizer state, gradients, weights (ZeRO 1 to 3, FSDP)."""

    DDP = "ddp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"


@dataclass(frozen=True, slots=True)
class Workload:
    """Describe one run. Counts are plain numbers, sizes GB, times hours or seconds as named; None is unknown.

    `global_batch` counts sequences over all GPUs, `micro_batch` those of one GPU at a time. `checkpointing` (recompute
    activations) and `sharding` are None when the planner may choose. `concurrency` is how many sequences are served at
    once, and of each request `prompt_tokens` are read and `output_tokens` generated. `served_tokens` are generated
    after the training, by a model that the plan chooses. `hours` is what was asked for when the work itself is not
    known. `data` says where the data lie. Evaluation takes `evaluation_share` of the training's time, or passes
    `evaluation_batches` batches for each step.
    """

    kind: WorkKind = WorkKind.TRAINING
    model: str | None = None
    total_params: int | None = None
    active_params: int | None = None
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    mlp_width: int | None = None
    gated: bool = False
    vocab: int | None = None
    seq: int | None = None
    global_batch: int | None = None
    micro_batch: int | None = None
    tokens: int | None = None
    served_tokens: int | None = None
    steps: int | None = None
    precision: Precision | None = None
    stack: str | None = None
    sharding: Sharding | None = None
    checkpointing: bool | None = None
    optimizer: Optimizer = Optimizer.ADAMW
    concurrency: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    goal_hours: Decimal | None = None
    hours: Decimal | None = None
    checkpoint_gb: Decimal | None = None
    checkpoint_every_s: int | None = None
    dataset_gb: Decimal | None = None
    data: DataSource | None = None
    evaluation_share: Decimal | None = None
    evaluation_batches: Decimal | None = None
    images: int | None = None
    resolution: int | None = None
    image_steps: int | None = None
    audio_hours: Decimal | None = None

    @property
    def medium(self) -> MediaModel | None:
        """Return the named model if it makes images or reads sound."""
        return media_model(self.model) if self.model else None

    @property
    def image_area(self) -> float:
        """Return the area of an image beside one of 1024 x 1024."""
        return ((self.resolution or PLAIN_RESOLUTION) / PLAIN_RESOLUTION) ** 2

    @property
    def at_once(self) -> int:
        """Return how many images, or windows of sound, are worked on at once."""
        several = self.medium is not None and self.medium.sound
        return self.concurrency or (PLAIN_WINDOWS if several else 1)

    @property
    def trains(self) -> bool:
        """Whether weights change: everything but serving and batch inference."""
        return self.kind not in (WorkKind.SERVING, WorkKind.BATCH)

    @property
    def adapts(self) -> bool:
        """Whether only small adapters are trained beside frozen weights."""
        return self.kind in (WorkKind.LORA, WorkKind.QLORA)

    @property
    def volume(self) -> DataSource | None:
        """Return where the data lie if that is a volume, which machines in its data center read in place."""
        return self.data if self.data is not None and self.data.known.volume else None

    @property
    def evaluated(self) -> Decimal:
        """Return by which factor evaluation makes a training longer: 1 where none was named."""
        if not self.trains:
            return Decimal(1)
        if self.evaluation_share is not None:
            return 1 / (1 - self.evaluation_share)
        forward = _FORWARD_SHARE_OF_ADAPTERS if self.adapts else _FORWARD_SHARE
        return 1 + (self.evaluation_batches or 0) * forward

    @property
    def sequence(self) -> int:
        """Return the tokens per sequence, as said or as assumed; of a request, its prompt and what is generated."""
        if self.medium is not None:
            return max(int(self.medium.places * self.image_area), 1) + self.medium.text_places
        request = 0 if self.trains else (self.prompt_tokens or 0) + (self.output_tokens or 0)
        return self.seq or request or PLAIN_SEQ

    @property
    def batch(self) -> int:
        """Return the sequences per optimizer step, as said or as assumed.

        Assumed are about half a million tokens; 16 sequences for fine-tuning.
        """
        if self.global_batch is not None:
            return self.global_batch
        return max(PLAIN_BATCH_TOKENS // self.sequence, 1) if self.kind is WorkKind.TRAINING else 16

    @property
    def number_format(self) -> Precision:
        """Return the precision, as said or as assumed: mixed bf16 for training, that of the weights for inference."""
        if self.precision is not None:
            return self.precision
        known = (self.medium or model(self.model)) if self.model and not self.trains else None
        return Precision.AMP_BF16 if self.trains else Precision.BF16 if known is None else Precision(known.stored)

    @property
    def total_tokens(self) -> int | None:
        """Count all tokens of the run: said, or steps x batch x sequence; None when neither is known.

        A model of images counts images, one of sound its seconds.
        """
        if self.medium is not None:
            seconds = None if self.audio_hours is None else int(self.audio_hours * 3600)
            return seconds if self.medium.sound else self.images
        if self.tokens is not None:
            return self.tokens
        if self.steps is not None and self.global_batch is not None and self.seq is not None:
            return self.steps * self.global_batch * self.seq
        return None


@dataclass(frozen=True, slots=True)
class Architecture:
    """Describe a model's shape with every number filled in.

    `body_params` are the weights that one token is multiplied with in the layers, `head_params` those of the output
    head, `total_params` everything that must be stored. `expert_params` are the weights of all experts and `routed` the
    experts that a token passes and `expert_width` the inner width of one; all are 0 where the layers have no experts.
    Of each token a layer keeps `cached_numbers` for later ones: its keys and values, or one vector that stands for them
    (`latent`). `local_layers` keep only the last `window` tokens. `stored` is the format of the published weights.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    mlp_width: int
    mlp_matrices: int
    vocab: int
    body_params: int
    head_params: int
    total_params: int
    expert_params: int = 0
    routed: int = 0
    expert_width: int = 0
    latent: int = 0
    local_layers: int = 0
    window: int = 0
    stored: Precision = Precision.BF16
    medium: MediaModel | None = None

    @property
    def cached_numbers(self) -> int:
        """Count the numbers that one layer keeps of one token while text is generated."""
        return self.latent or 2 * self.kv_heads * self.head_width

    @property
    def matmul_params(self) -> int:
        """Count the weights that one token is multiplied with."""
        return self.body_params + self.head_params

    @property
    def outer_params(self) -> int:
        """Count the weights of the embedding and the output head."""
        return min(2 * self.head_params, self.total_params)

    def optimizer_bytes(self, optimizer: Optimizer) -> float:
        """Return what an optimizer of all weights keeps, the 32-bit copy of them included."""
        return state_bytes(optimizer, float(self.total_params), float(self.outer_params))


def architecture(work: Workload) -> Architecture | None:
    """Return the shape: the named model's, as said, or typical of the size; None without size, layers and width."""
    shape = model(work.model) if work.model else None
    changed = any(said is not None for said in (work.layers, work.width, work.total_params))
    if work.medium is not None:
        return _of_media(work.medium)
    if shape is not None and not changed:
        return _named(shape)
    if work.layers is not None and work.width is not None:
        return _plain(work, work.layers, work.width)
    if work.total_params is not None:
        layers, width = typical(work.total_params)
        return _plain(work, work.layers or layers, work.width or width)
    return None


def _named(shape: ModelShape) -> Architecture:
    return Architecture(
        layers=shape.layers,
        width=shape.width,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_width=shape.head_width,
        mlp_width=shape.mlp_width * shape.experts_used,
        mlp_matrices=3 if shape.gated else 2,
        vocab=shape.vocab,
        body_params=shape.active_body_params,
        head_params=shape.width * shape.vocab,
        total_params=shape.total_params,
        expert_params=shape.all_experts_params,
        routed=shape.experts_used if shape.experts > 1 else 0,
        expert_width=shape.mlp_width if shape.experts > 1 else 0,
        latent=shape.latent,
        local_layers=shape.local_layers,
        window=shape.window,
        stored=Precision(shape.stored),
    )


def _of_media(found: MediaModel) -> Architecture:
    return Architecture(
        layers=found.layers,
        width=found.width,
        heads=found.width // found.head_width,
        kv_heads=found.width // found.head_width,
        head_width=found.head_width,
        mlp_width=4 * found.width,
        mlp_matrices=found.mlp_matrices,
        vocab=0,
        body_params=found.network_params,
        head_params=0,
        total_params=found.total_params,
        stored=Precision(found.stored),
        medium=found,
    )


def _plain(work: Workload, layers: int, width: int) -> Architecture:
    vocab = work.vocab or PLAIN_VOCAB
    heads = work.heads or max(width // PLAIN_HEAD_WIDTH, 1)
    kv_heads, mlp_width, matrices = work.kv_heads or heads, work.mlp_width or 4 * width, 3 if work.gated else 2
    attention = 2 * width * width * (heads + kv_heads) // heads
    classic, head = layers * (attention + matrices * width * mlp_width), vocab * width
    active = work.active_params or work.total_params or classic + head
    total = max(work.total_params or 0, active)
    return Architecture(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_width=max(width // heads, 1),
        mlp_width=mlp_width,
        mlp_matrices=matrices,
        vocab=vocab,
        body_params=classic if work.mlp_width else _body(active, classic, head, work.sequence * width),
        head_params=head,
        total_params=total,
        expert_params=total - active,
        routed=PLAIN_ROUTED if total > active else 0,
        expert_width=mlp_width // PLAIN_ROUTED if total > active else 0,
    )


def _body(params: int, classic: int, head: int, positions: int) -> int:
    """Return the layers' part of a parameter count.

    A count that the classic shape explains, learned positions included (one vector per place in the sequence, looked up
    and never multiplied), is that shape; any other is used as it is, without the embedding.
    """
    rest = params - classic - head
    if -params * 3 // 100 <= rest <= max(params * 3 // 100, positions * 11 // 10):
        return classic
    return max(params - head, params // 2)
