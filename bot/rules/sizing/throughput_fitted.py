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
    "multiply": 1.018,
    "attention": 2.128,
    "memory": 575.9,
    "mixed": 68.38,
    "exchange": 1.085,
    "network": 0.428,
    "waiting": 0.004412,
}
DECODING_TERMS: Mapping[str, float] = {
    "reading": 1.249,
    "layer": 8.46e-05,
    "exchange": 3.552e-05,
}
#: feature → its effect on the logarithm of the rate
TRAINING_EFFECTS: Mapping[str, float] = {
    "any": 0.1256,
    "year": 0.1542,
    "fp8": 0.02914,
    "lora": 0.01804,
    "qlora": -0.0474,
    "experts": -0.4742,
    "thin experts": 0.009307,
    "small": 0.008085,
    "alone": -0.03842,
    "machines": 0.01141,
    "workstation": 0.004226,
    "blackwell": 0.002704,
    "amd": 0,
    "older": 0,
}
DECODING_EFFECTS: Mapping[str, float] = {
    "any": 0.1635,
    "year": 0.006882,
    "int8": -0.1822,
    "int4": -0.0728,
    "wide memory": -0.1089,
    "int4 on wide memory": -0.2145,
    "several": -0.05477,
}
#: GPU type → its effect on the logarithm of the rate
TRAINING_GPUS: Mapping[str, float] = {
    "A100-SXM-40GB": -0.01907,
    "A100-SXM-80GB": -0.04393,
    "A5000": 0.02557,
    "A6000": 0.04237,
    "B200": -0.07398,
    "B300": -0.002625,
    "GB200": 0.08742,
    "H100-SXM": -0.01329,
    "H200": -0.01979,
    "H800-SXM": 0.08232,
    "RTX3090": -0.05358,
    "RTX4090": 0.01477,
    "RTX6000Ada": -0.01223,
}
DECODING_GPUS: Mapping[str, float] = {
    "A100-PCIE-80GB": -0.05072,
    "A100-SXM-40GB": 0.06918,
    "A100-SXM-80GB": -0.1094,
    "A10G": -0.08689,
    "A6000": 0.03764,
    "H100-PCIE": -0.018,
    "RTX3070": -0.002813,
    "RTX3080": -7.458e-05,
    "RTX3080Ti": -0.05449,
    "RTX3090": -0.003374,
    "RTX3090Ti": -9.747e-05,
    "RTX4000Ada": 0.03562,
    "RTX4070Ti": 0.02218,
    "RTX4080": 0.07481,
    "RTX4090": 0.0768,
    "RTX5000Ada": 0.0608,
    "RTX6000Ada": -0.033,
}
#: stack → its effect on the logarithm of the rate, in the latest year that it was measured
TRAINING_STACKS: Mapping[str, float] = {
    "deepseek": -0.01362,
    "dots": 0.0446,
    "fms-fsdp": -0.2549,
    "fsdp-qlora": -0.3031,
    "halo": -0.01169,
    "jetmoe": -0.04269,
    "llm-foundry": -0.1389,
    "llm.c": -0.06784,
    "llm.c-pytorch": 0.007017,
    "megatron": 0.1825,
    "meta": -0.05028,
    "nanochat": 0.08694,
    "nanogpt": -0.3786,
    "nanogpt-1gpu": 0.07146,
    "nanogpt-ashraf": 0.06639,
    "olmo-core": -0.1454,
    "pytorch": -0.114,
    "qwen-finetune": -0.6958,
    "tinyllama": -0.2183,
    "torchtitan": -0.04389,
    "torchtune": -0.108,
}
DECODING_STACKS: Mapping[str, float] = {
    "autoawq": 0.0504,
    "ctranslate2": -0.3308,
    "deepspeed": -0.05266,
    "exllama": -0.02643,
    "exllamav2": 0.06855,
    "gpt-fast": 0.2533,
    "llama.cpp": -0.1142,
    "mlc-llm": 0.1302,
    "tensorrt-llm": 0.1209,
    "vllm": -0.1091,
}
#: stack → whether the GPUs that it was measured on are of the data center
MEASURED_ON: Mapping[str, tuple[bool, ...]] = {
    "autoawq": (False, True),
    "ctranslate2": (True,),
    "deepseek": (True,),
    "deepspeed": (True,),
    "dots": (True,),
    "exllama": (False,),
    "exllamav2": (False, True),
    "fms-fsdp": (True,),
    "fsdp-qlora": (False, True),
    "gpt-fast": (False, True),
    "halo": (True,),
    "jetmoe": (True,),
    "llama.cpp": (False, True),
    "llm-foundry": (True,),
    "llm.c": (True,),
    "llm.c-pytorch": (False,),
    "megatron": (True,),
    "meta": (True,),
    "mlc-llm": (False, True),
    "nanochat": (True,),
    "nanogpt": (True,),
    "nanogpt-1gpu": (False,),
    "nanogpt-ashraf": (True,),
    "olmo-core": (True,),
    "pytorch": (False, True),
    "qwen-finetune": (True,),
    "tensorrt-llm": (True,),
    "tinyllama": (True,),
    "torchtitan": (True,),
    "torchtune": (False, True),
    "vllm": (False, True),
}
SPREADS: Mapping[Group, Spread] = {
    Group.DENSE: Spread(0.148, 0.298),
    Group.NEW: Spread(0.188, 0.623),
    Group.EXPERTS: Spread(0.224, 0.416),
    Group.ADAPTERS: Spread(0.188, 0.401),
    Group.DECODING: Spread(0.154, 0.308),
}
#: stacks with so many rows that they have a spread of their own, on GPUs of the data center
OWN_SPREADS: Mapping[str, float] = {
    "llm-foundry": 0.06278,
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
ROWS = {True: 218, False: 73}
