"""Hold what was fitted on published runs. Written by `python -m tests.bench.throughput_fit`; do not edit.

Sources: the rows of `tests/bench/fitting/throughput_rows.csv`, each with its address; 107 rows of mosaicml/llm-foundry
(scripts/train/benchmarking/README.md @8c8dd48, Apache-2.0); 40 published rates of twelve stacks. How the fit works and
how good it is: docs/estimates.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.rules.sizing.groups import Group


@dataclass(frozen=True, slots=True)
class Exponents:
    """Hold the exponents that inner cross-validation chose, not a person who looked at the result.

    `head` is how much attention slows down with narrow heads: (128 / head width) to that power. `waiting` is how the
    wait for the slowest of several machines grows: log2(machines) to that power.
    """

    head: float
    waiting: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Hold the deviation of the logarithm for a stack with published runs, and for any other."""

    known_stack: float
    other_stack: float


EXPONENTS = Exponents(head=0.2, waiting=2.0)
TRAINING_TERMS: Mapping[str, float] = {
    "multiply": 1.003,
    "attention": 2.131,
    "memory": 575.7,
    "mixed": 100.6,
    "exchange": 1.231,
    "network": 0.4261,
    "waiting": 0.006212,
}
DECODING_TERMS: Mapping[str, float] = {
    "reading": 1.249,
    "layer": 8.46e-05,
    "exchange": 3.552e-05,
}
#: feature → its effect on the logarithm of the rate
TRAINING_EFFECTS: Mapping[str, float] = {
    "any": 0.1099,
    "year": 0.1714,
    "fp8": 0.03652,
    "lora": 0.02076,
    "qlora": -0.04382,
    "experts": -0.4803,
    "thin experts": 0.001301,
    "small": 0.0112,
    "alone": -0.036,
    "machines": 0.01981,
    "workstation": 0.01416,
    "blackwell": 0.007037,
    "amd": 0,
    "older": 0,
}
DECODING_EFFECTS: Mapping[str, float] = {
    "any": 0.1624,
    "year": 0.0007929,
    "int8": -0.199,
    "int4": -0.06876,
    "wide memory": -0.175,
    "int4 on wide memory": -0.2301,
    "several": -0.07296,
}
#: stack → its effect on the logarithm of the rate, in the latest year that it was measured
TRAINING_STACKS: Mapping[str, float] = {
    "deepseek": -0.05899,
    "fms-fsdp": -0.2703,
    "fsdp-qlora": -0.2998,
    "halo": -0.0259,
    "jetmoe": -0.0589,
    "llm-foundry": -0.1502,
    "llm.c": -0.08814,
    "llm.c-pytorch": 0.02,
    "megatron": 0.1821,
    "meta": -0.1905,
    "nanochat": 0.08101,
    "nanogpt": -0.3905,
    "nanogpt-1gpu": 0.08007,
    "nanogpt-ashraf": 0.06206,
    "olmo-core": -0.1526,
    "pytorch": -0.1069,
    "qwen-finetune": -0.7222,
    "tinyllama": -0.2456,
    "torchtitan": -0.09566,
    "torchtune": -0.1126,
}
DECODING_STACKS: Mapping[str, float] = {
    "autoawq": 0.1083,
    "ctranslate2": -0.3544,
    "deepspeed": -0.08389,
    "exllama": 0.006952,
    "exllamav2": 0.07293,
    "gpt-fast": 0.2284,
    "llama.cpp": -0.08303,
    "mlc-llm": 0.1474,
    "tensorrt-llm": 0.08999,
    "vllm": -0.06991,
}
SPREADS: Mapping[Group, Spread] = {
    Group.DENSE: Spread(0.148, 0.338),
    Group.NEW: Spread(0.181, 0.654),
    Group.EXPERTS: Spread(0.240, 0.480),
    Group.ADAPTERS: Spread(0.195, 0.432),
    Group.DECODING: Spread(0.148, 0.293),
}
#: stacks with so many rows that they have a spread of their own, on GPUs of the data center
OWN_SPREADS: Mapping[str, float] = {
    "llm-foundry": 0.06183,
}
#: GPU types with a row
GPUS = frozenset(
    [
        "A100-PCIE-80GB",
        "A100-SXM-40GB",
        "A100-SXM-80GB",
        "A10G",
        "A5000",
        "A6000",
        "B200",
        "B300",
        "GB200",
        "H100-PCIE",
        "H100-SXM",
        "H200",
        "H800-SXM",
        "RTX3070",
        "RTX3080",
        "RTX3080Ti",
        "RTX3090",
        "RTX3090Ti",
        "RTX4000Ada",
        "RTX4070Ti",
        "RTX4080",
        "RTX4090",
        "RTX5000Ada",
        "RTX6000Ada",
    ]
)
#: whether a run trains → rows behind the fit
ROWS = {True: 214, False: 73}
