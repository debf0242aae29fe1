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
    "any": 0.1153,
    "year": 0.154,
    "fp8": 0.0376,
    "lora": 0.01669,
    "qlora": -0.04565,
    "experts": -0.4537,
    "thin experts": 0.008475,
    "small": 0.01147,
    "alone": -0.03861,
    "machines": 0.01375,
    "workstation": 0.009016,
    "blackwell": -0.00169,
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
    "A100-SXM-40GB": -0.008457,
    "A100-SXM-80GB": -0.02718,
    "A5000": 0.03202,
    "A6000": 0.04211,
    "B200": -0.07332,
    "B300": -0.005225,
    "GB200": 0.07178,
    "H100-SXM": -0.009761,
    "H200": -0.02046,
    "H800-SXM": 0.04937,
    "RTX3090": -0.05643,
    "RTX4090": 0.02019,
    "RTX6000Ada": -0.001829,
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
    "deepseek": -0.04291,
    "fms-fsdp": -0.2517,
    "fsdp-qlora": -0.2884,
    "halo": -0.02886,
    "jetmoe": -0.04187,
    "llm-foundry": -0.14,
    "llm.c": -0.07345,
    "llm.c-pytorch": 0.01362,
    "megatron": 0.1781,
    "meta": -0.1532,
    "nanochat": 0.08267,
    "nanogpt": -0.3696,
    "nanogpt-1gpu": 0.07612,
    "nanogpt-ashraf": 0.06808,
    "olmo-core": -0.1428,
    "pytorch": -0.1084,
    "qwen-finetune": -0.6961,
    "tinyllama": -0.2155,
    "torchtitan": -0.04096,
    "torchtune": -0.106,
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
    Group.DENSE: Spread(0.153, 0.320),
    Group.NEW: Spread(0.200, 0.640),
    Group.EXPERTS: Spread(0.241, 0.459),
    Group.ADAPTERS: Spread(0.197, 0.439),
    Group.DECODING: Spread(0.158, 0.323),
}
#: stacks with so many rows that they have a spread of their own, on GPUs of the data center
OWN_SPREADS: Mapping[str, float] = {
    "llm-foundry": 0.06349,
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
