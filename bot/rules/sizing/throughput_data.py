"""Hold the numbers behind `bot.rules.sizing.throughput`: what was fitted and from what, and its sources.

The coefficients are the output of `python -m tests.bench.throughput_check --fit` on 103 bf16 rows of published training
throughput (mosaicml/llm-foundry, scripts/train/benchmarking/README.md @8c8dd48, Apache-2.0: MPT 125M to 70B on
A100-40GB, A100-80GB and H100-80GB, 8 to 512 GPUs). The rows are not kept here. A coefficient of 1 would mean that the
hardware does exactly what its data sheet says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.rules.sizing.workload import Precision


@dataclass(frozen=True, slots=True)
class Exponents:
    """Hold the exponents that inner cross-validation chose, not a person who looked at the result.

    `head` is how much attention slows down with narrow heads: (128 / head width) to that power. `waiting` is how the
    wait for the slowest of several machines grows: log2(machines) to that power.
    """

    head: float
    waiting: float


#: Chosen by inner cross-validation on all rows (`--fit` prints the choice of each fold as well).
EXPONENTS = Exponents(head=0.2, waiting=2.0)

#: term of `throughput.terms` → its coefficient.
COEFFICIENTS: Mapping[str, float] = {
    "multiply": 1.00276,
    "attention": 2.1313,
    "memory": 575.711,
    "mixed": 100.558,
    "exchange": 1.23061,
    "network": 0.426103,
    "waiting": 0.00621205,
}

#: Share of the peak that fused attention kernels reach, by architecture. Ampere: the middle of the 50 to 73 % of
#: FlashAttention-2 on A100 (arXiv:2307.08691, abstract). Hopper: 35 % of FlashAttention-2 on H100 (arXiv:2407.08608,
#: abstract). Ada runs the same instructions as Ampere. For all others no published share is used: they count as Hopper,
#: the lower of the two, and their range is wider.
ATTENTION_SHARE: Mapping[str, float] = {"Ampere": 0.615, "Ada": 0.615, "Hopper": 0.35}
OTHER_ATTENTION_SHARE = 0.35

#: Bandwidth between the GPUs of one machine, one direction, in GB/s: NVLink as the makers state it and as
#: cli99/llm-analysis (Apache-2.0) lists it; Infinity Fabric for Instinct.
NVLINK_GB_S: Mapping[str, float] = {
    "GB200": 900,
    "B300": 900,
    "B200": 900,
    "B100": 900,
    "GH200": 450,
    "H200": 450,
    "H200-NVL": 450,
    "H100-SXM": 450,
    "H100-NVL": 300,
    "H800-SXM": 200,
    "A100-SXM-80GB": 300,
    "A100-SXM-40GB": 300,
    "A100X": 300,
    "A800-SXM": 200,
    "V100-32GB": 150,
    "V100-16GB": 150,
    "P100": 80,
    "MI355X": 540,
    "MI325X": 448,
    "MI300X": 448,
    "MI300A": 448,
    "MI250X": 400,
    "MI250": 400,
    "MI210": 150,
}
#: PCI Express with 16 lanes, one direction, in GB/s: fifth generation for Hopper and Blackwell, fourth for others.
PCIE_GB_S: Mapping[str, float] = {"Hopper": 64, "Blackwell": 64}
OTHER_PCIE_GB_S = 32.0

#: Bandwidth between machines in GB/s per machine, as in the rows behind the coefficients: 8 x 200 Gbit/s with A100,
#: 8 x 400 Gbit/s with H100 and newer (cli99/llm-analysis lists the same).
MACHINE_GB_S: Mapping[str, float] = {"Ampere": 200, "Hopper": 400, "Blackwell": 400, "CDNA3": 400, "CDNA4": 400}
#: Machines of unknown network are taken to have 25 Gbit/s.
OTHER_MACHINE_GB_S = 3.125
GPUS_PER_MACHINE = 8

#: Peak rates beside the dense bf16 rate: fp8 and int8 are twice it where the tensor cores have them; TF32 is half of it
#: and plain fp32 an eighth (between the 1/16 of A100 and the 1/4 of RTX A6000, from the makers' data sheets).
DOUBLE_RATE_ARCHITECTURES = frozenset(["Ada", "Hopper", "Blackwell", "CDNA3", "CDNA4"])
RATE: Mapping[Precision, float] = {Precision.TF32: 0.5, Precision.FP32: 0.125}

#: QLoRA against LoRA with 16-bit weights: 39 % more time for the same steps (Sebastian Raschka, "Practical Tips for
#: Finetuning LLMs Using LoRA", 2023-11-19, Lit-GPT, Llama 2 7B on A100).
QLORA_SLOWDOWN = 1.39
#: Bytes per second of one GPU's share of host memory while the optimizer runs there: about 160 GB/s of a two-socket
#: machine over eight GPUs. Judgement, not a measurement; the range of such a plan is wider.
HOST_GB_S = 20.0

# ── decoding ─────────────────────────────────────────────────────────────────────────────────────

#: From the README of pytorch-labs/gpt-fast @0f925b5 (BSD-3), Llama 2 on A100-80GB, batch 1: the share of the memory
#: bandwidth by weight format, the fixed time of a layer, and what a layer's exchange between GPUs adds.
DECODE_SHARE: Mapping[Precision, float] = {Precision.INT8: 0.63, Precision.FP8: 0.63, Precision.INT4: 0.45}
OTHER_DECODE_SHARE = 0.77
LAYER_S = 33e-6
EXCHANGE_S = 25e-6


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """Record one published measurement of single-stream decoding: tokens per second of `model` on `count` of `gpu`."""

    model: str
    gpu: str
    count: int
    weights: Precision
    tokens_s: float
    source: str


_GPT_FAST = "https://github.com/pytorch-labs/gpt-fast README @0f925b5"
DECODE_ROWS: tuple[DecodeRow, ...] = (
    DecodeRow("llama-2-7b", "A100-SXM-80GB", 1, Precision.BF16, 104.9, _GPT_FAST),
    DecodeRow("llama-2-7b", "A100-SXM-80GB", 2, Precision.BF16, 168.84, _GPT_FAST),
    DecodeRow("llama-2-7b", "A100-SXM-80GB", 4, Precision.BF16, 254.02, _GPT_FAST),
    DecodeRow("llama-2-7b", "A100-SXM-80GB", 8, Precision.BF16, 328.43, _GPT_FAST),
    DecodeRow("llama-2-7b", "A100-SXM-80GB", 1, Precision.INT8, 155.58, _GPT_FAST),
    DecodeRow("llama-2-7b", "A100-SXM-80GB", 1, Precision.INT4, 196.80, _GPT_FAST),
    DecodeRow("llama-2-70b", "A100-SXM-80GB", 2, Precision.BF16, 21.32, _GPT_FAST),
    DecodeRow("llama-2-70b", "A100-SXM-80GB", 4, Precision.BF16, 38.01, _GPT_FAST),
    DecodeRow("llama-2-70b", "A100-SXM-80GB", 8, Precision.BF16, 62.50, _GPT_FAST),
    DecodeRow("llama-2-70b", "A100-SXM-80GB", 1, Precision.INT8, 19.13, _GPT_FAST),
    DecodeRow("llama-2-70b", "A100-SXM-80GB", 1, Precision.INT4, 25.25, _GPT_FAST),
    DecodeRow("llama-2-7b", "RTX4090", 1, Precision.BF16, 65.0, "https://github.com/pytorch-labs/gpt-fast/issues/27"),
)

# ── stacks ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StackRow:
    """Record one published run of another training stack, in the words of `bot.rules.grammar.workload_words`."""

    stack: str
    words: str
    gpu: str
    count: int
    tokens_s: float
    source: str


STACK_ROWS: tuple[StackRow, ...] = (
    StackRow(
        "torchtitan",
        "model=llama-3-8b seq=8192 batch=16 micro-batch=2 precision=amp_bf16 sharding=zero3 checkpointing=no",
        "H100-SXM",
        8,
        8 * 6667.0,
        "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md @31a17bf, table 1 with torch.compile"
        " (HBM2e cards at 500 W, selective recomputation)",
    ),
    StackRow(
        "torchtitan",
        "model=llama-3-8b seq=8192 batch=256 micro-batch=2 precision=amp_bf16 sharding=zero3 checkpointing=no",
        "H100-SXM",
        128,
        128 * 6514.0,
        "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md @31a17bf, table 3 with torch.compile",
    ),
    StackRow(
        "nanochat",
        "layers=24 width=1536 heads=12 vocab=32768 seq=2048 batch=256 micro-batch=16 precision=bf16 sharding=zero2"
        " checkpointing=no",
        "H100-SXM",
        8,
        748_450.0,
        "karpathy/nanochat, depth 24: 4.330784e19 FLOPs in 10,949 s on 8 H100, at 5.285e9 FLOPs per token of this shape"
        " (FlashAttention-3, torch.compile)",
    ),
)
#: stack → measured over predicted tokens/s, the geometric mean of its rows above (a test computes it again). Other
#: stacks count as 1 with a wider range until runs of this installation say otherwise.
STACKS: Mapping[str, float] = {"llm-foundry": 1.0, "torchtitan": 0.835, "nanochat": 1.29}

# ── ranges ───────────────────────────────────────────────────────────────────────────────────────

#: Standard deviations of the logarithm, added in squares. The first two come from the cross-validation of the
#: coefficients: models and GPU types that the fit had not seen. The others are judgement and wider for that reason.
SPREAD_MODEL = 0.06
SPREAD_NEAR_GPU = 0.06
SPREAD_FAR_GPU = 0.25
SPREAD_STACK = 0.12
SPREAD_NO_NVLINK = 0.20
#: Layouts that the fitted rows do not have: one GPU, or data parallel without shared gradients.
SPREAD_OTHER_LAYOUT = 0.08
SPREAD_OFFLOAD = 0.40
SPREAD_DECODE = 0.20
#: Host to host for one GPU model: 0.4 to 7 % in data centers (the same survey: 20 to 80 % on marketplaces).
SPREAD_HOST = 0.05
#: Run to run on the same GPU and stack, and for evidence from another GPU with the same stack.
SPREAD_RUN = 0.05
SPREAD_OTHER_GPU = 0.12
#: The range that is shown holds four of five runs.
RANGE_SIGMAS = 1.2816
MEASURED_GPUS = frozenset(["A100-SXM-40GB", "A100-SXM-80GB", "H100-SXM"])
NEAR_ARCHITECTURES = frozenset(["Ampere", "Hopper"])
