"""Hold the numbers behind `bot.rules.sizing.training` that no fit can give: link rates, attainable shares, judgement.

What was fitted on published runs is in `bot.rules.sizing.throughput_fitted`.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.rules.sizing.workload import Precision

#: Rate of large 16-bit matrix multiplications over the data sheet's, relative to A100's. Of the data center: the table
#: of maximum achievable matmul FLOPS in stas00/ml-engineering (compute/accelerator/README.md @b9e29720): A100 SXM 271.2
#: TFLOP/s, A100 PCIe 252.9, H100 SXM 794.5 ("H200 is the same"), GH200 828.6, B200 1745, B300 1769, GB200 1822, MI300X
#: 668.4, MI325X 784.9, MI355X 1565. Their siblings count alike. Cards for workstations and players:
#: mli/transformers-benchmarks @3370b2b, README, where A100 had 230 TFLOP/s: A6000 95, V100 95, RTX 3090 Ti 81, RTX 4090
#: 172. All others count as A100.
ATTAINABLE: Mapping[str, float] = {
    "A100-PCIE-40GB": 0.93,
    "A100-PCIE-80GB": 0.93,
    "GH200": 0.96,
    "H100-NVL": 0.92,
    "H100-PCIE": 0.92,
    "H100-SXM": 0.92,
    "H200": 0.92,
    "H200-NVL": 0.92,
    "H800-PCIE": 0.92,
    "H800-SXM": 0.92,
    "B100": 0.89,
    "B200": 0.89,
    "B300": 0.90,
    "GB200": 0.84,
    "MI300A": 0.59,
    "MI300X": 0.59,
    "MI325X": 0.69,
    "MI355X": 0.72,
    "A6000": 0.83,
    "V100-16GB": 1.15,
    "V100-32GB": 1.15,
    "RTX3090": 1.36,
    "RTX3090Ti": 1.36,
    "RTX4090": 1.36,
}

#: A100's 271.2 of 312 TFLOP/s: no run uses more of the attainable rate than large matrix multiplications alone.
MOST_OF_PEAK = 0.87

#: Share of the peak that fused attention kernels reach, by architecture. Ampere: the middle of the 50 to 73 % of
#: FlashAttention-2 on A100 (arXiv:2307.08691, abstract). Hopper: 35 % of FlashAttention-2 on H100 (arXiv:2407.08608,
#: abstract). Ada runs the same instructions as Ampere. For all others no published share is used: they count as Hopper,
#: the lower of the two, and their range is wider; Instinct's times what its matrices attain beside A100's.
ATTENTION_SHARE: Mapping[str, float] = {"Ampere": 0.615, "Ada": 0.615, "Hopper": 0.35, "CDNA3": 0.21, "CDNA4": 0.25}
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

#: Bytes per second of one GPU's share of host memory while the optimizer runs there: about 160 GB/s of a two-socket
#: machine over eight GPUs. Judgement, not a measurement; the range of such a plan is wider.
HOST_GB_S = 20.0

# ── ranges ───────────────────────────────────────────────────────────────────────────────────────

#: Standard deviations of the logarithm, added in squares to what leaving stacks out showed. Judgement: a GPU type
#: without a published row, several GPUs without NVLink, an optimizer in the host's memory.
SPREAD_OTHER_TYPE = 0.15
SPREAD_NO_NVLINK = 0.20
SPREAD_OFFLOAD = 0.40
#: Host to host for one GPU model: 0.4 to 7 % in data centers (the same survey: 20 to 80 % on marketplaces).
SPREAD_HOST = 0.05
#: Run to run on the same GPU and stack, and for evidence from another GPU with the same stack.
SPREAD_RUN = 0.05
SPREAD_OTHER_GPU = 0.12
#: The range that is shown holds four of five runs.
RANGE_SIGMAS = 1.2816
