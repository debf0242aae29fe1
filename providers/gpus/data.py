"""The GPU table as data; `providers.gpus.table` reads it. One row per GPU, one block of spellings per cloud.

Sources of the numbers: the makers' data sheets (NVIDIA: A2, A10, A16, A30, A40, A100, H100, H200, HGX B200 and B300,
GH200, L4, L40, L40S, T4, V100, P40, P100, RTX Ada, RTX PRO Blackwell; the Turing, GA102, AD102 and GB202 papers;
AMD: Instinct MI100 to MI355X, Radeon PRO W7900, RX 7900 XTX), the peak rates of karpathy/nanochat (MIT) and the GPU
configurations of cli99/llm-analysis (Apache-2.0; its A10 row says 28 GB, the card has 24). Where one of those lists a
single number for several variants, the maker's sheet for the variant decides. `-` means no dense figure is known.

Columns: canonical name | GB per GPU | architecture | compute capability | dense bf16 TFLOP/s with 32-bit accumulation
(fp16 before Ampere) | memory bandwidth in GB/s | further spellings that people use, separated by commas.
"""

from __future__ import annotations

SPECS = """
GB200         | 186 | Blackwell | 10.0 | 2500   | 8000  | grace blackwell
B300          | 288 | Blackwell | 10.3 | 2250   | 8000  | b300 sxm
B200          | 180 | Blackwell | 10.0 | 2250   | 8000  | b200 sxm, b200 192gb
B100          | 180 | Blackwell | 10.0 | 1800   | 8000  | b100 192gb
GH200         | 96  | Hopper    | 9.0  | 989    | 4000  | gh200 sxm, grace hopper
H200          | 141 | Hopper    | 9.0  | 989    | 4800  | h200 sxm
H200-NVL      | 141 | Hopper    | 9.0  | 836    | 4800  |
H100-SXM      | 80  | Hopper    | 9.0  | 989    | 3350  |
H100-PCIE     | 80  | Hopper    | 9.0  | 756    | 2000  |
H100-NVL      | 94  | Hopper    | 9.0  | 835    | 3900  |
H800-SXM      | 80  | Hopper    | 9.0  | 989    | 3350  |
H800-PCIE     | 80  | Hopper    | 9.0  | 756    | 2000  |
A100-SXM-80GB | 80  | Ampere    | 8.0  | 312    | 2039  |
A100-SXM-40GB | 40  | Ampere    | 8.0  | 312    | 1555  |
A100-PCIE-80GB| 80  | Ampere    | 8.0  | 312    | 1935  |
A100-PCIE-40GB| 40  | Ampere    | 8.0  | 312    | 1555  |
A100X         | 80  | Ampere    | 8.0  | 312    | 2039  |
A800-SXM      | 80  | Ampere    | 8.0  | 312    | 2039  |
A800-PCIE     | 80  | Ampere    | 8.0  | 312    | 1935  |
A30           | 24  | Ampere    | 8.0  | 165    | 933   |
A40           | 48  | Ampere    | 8.6  | 149.7  | 696   |
A16           | 16  | Ampere    | 8.6  | 17.9   | 200   |
A10           | 24  | Ampere    | 8.6  | 125    | 600   |
A10G          | 24  | Ampere    | 8.6  | 70     | 600   |
A2            | 16  | Ampere    | 8.6  | 18     | 200   |
L40S          | 48  | Ada       | 8.9  | 362    | 864   | l40-s
L40           | 48  | Ada       | 8.9  | 181    | 864   |
L4            | 24  | Ada       | 8.9  | 121    | 300   |
T4            | 16  | Turing    | 7.5  | 65     | 320   | tesla t4
V100-32GB     | 32  | Volta     | 7.0  | 112    | 900   | tesla v100, v100 sxm 32gb, v100 pcie 32gb
V100-16GB     | 16  | Volta     | 7.0  | 112    | 900   | tesla v100, v100 sxm 16gb, v100 pcie 16gb
P100          | 16  | Pascal    | 6.0  | 18.7   | 732   | tesla p100
P40           | 24  | Pascal    | 6.1  | 0.18   | 346   | tesla p40
K80           | 12  | Kepler    | 3.7  | -      | 240   | tesla k80
RTX5090       | 32  | Blackwell | 12.0 | 209.5  | 1792  |
RTX5080       | 16  | Blackwell | 12.0 | 112.6  | 960   |
RTX5070Ti     | 16  | Blackwell | 12.0 | 87.9   | 896   |
RTX5060Ti     | 16  | Blackwell | 12.0 | 47.4   | 448   |
RTX4090       | 24  | Ada       | 8.9  | 165.2  | 1008  |
RTX4090D      | 24  | Ada       | 8.9  | 147.1  | 1008  |
RTX4080S      | 16  | Ada       | 8.9  | 104.4  | 736   | rtx 4080 super
RTX4080       | 16  | Ada       | 8.9  | 97.5   | 717   |
RTX4070TiS    | 16  | Ada       | 8.9  | 88.2   | 672   | rtx 4070 ti super, rtx 4070s ti
RTX4070Ti     | 12  | Ada       | 8.9  | 80.2   | 504   |
RTX4060Ti     | 16  | Ada       | 8.9  | 44.1   | 288   |
RTX3090Ti     | 24  | Ampere    | 8.6  | 80     | 1008  |
RTX3090       | 24  | Ampere    | 8.6  | 71     | 936   |
RTX3080Ti     | 12  | Ampere    | 8.6  | 68.2   | 912   |
RTX3080       | 10  | Ampere    | 8.6  | 59.5   | 760   |
RTX3070       | 8   | Ampere    | 8.6  | 40.6   | 448   |
RTX3060       | 12  | Ampere    | 8.6  | 25.4   | 360   |
RTX2080Ti     | 11  | Turing    | 7.5  | 53.8   | 616   |
A6000         | 48  | Ampere    | 8.6  | 154.8  | 768   | rtx a6000
A5000         | 24  | Ampere    | 8.6  | 111.1  | 768   | rtx a5000
A4500         | 20  | Ampere    | 8.6  | 94.6   | 640   | rtx a4500
A4000         | 16  | Ampere    | 8.6  | 76.7   | 448   | rtx a4000
A2000         | 12  | Ampere    | 8.6  | 31.9   | 288   | rtx a2000
RTX6000Ada    | 48  | Ada       | 8.9  | 364.2  | 960   | rtx 6000, a6000 ada, rtx 6000 ada generation
RTX5880Ada    | 48  | Ada       | 8.9  | 277.1  | 960   | rtx 5880
RTX5000Ada    | 32  | Ada       | 8.9  | 261.1  | 576   | rtx 5000, rtx 5000 ada generation
RTX4500Ada    | 24  | Ada       | 8.9  | 158.5  | 432   | rtx 4500 ada generation
RTX4000Ada    | 20  | Ada       | 8.9  | 81.9   | 360   | rtx 4000 ada generation, rtx 4000 sff ada
RTX2000Ada    | 16  | Ada       | 8.9  | 48     | 224   | rtx 2000 ada generation
RTXPRO6000-S  | 96  | Blackwell | 12.0 | 500    | 1597  | pro 6000, rtx pro 6000 server
RTXPRO6000-WS | 96  | Blackwell | 12.0 | 503.8  | 1792  | pro 6000, rtx pro 6000 workstation
RTXPRO6000-MaxQ| 96 | Blackwell | 12.0 | 438.9  | 1792  | pro 6000, rtx pro 6000 max-q
RTXPRO5000    | 48  | Blackwell | 12.0 | -      | 1344  | pro 5000
RTXPRO4500    | 32  | Blackwell | 12.0 | -      | 896   | pro 4500
RTXPRO4000    | 24  | Blackwell | 12.0 | -      | 672   | pro 4000
QuadroRTX8000 | 48  | Turing    | 7.5  | 130.5  | 672   | rtx 8000, q rtx 8000
QuadroRTX6000 | 24  | Turing    | 7.5  | 130.5  | 672   | rtx 6000, q rtx 6000
QuadroRTX5000 | 16  | Turing    | 7.5  | 89.2   | 448   | rtx 5000, q rtx 5000
TitanRTX      | 24  | Turing    | 7.5  | 130.5  | 672   |
MI355X        | 288 | CDNA4     | -    | 2500   | 8000  | mi355, instinct mi355x
MI325X        | 256 | CDNA3     | -    | 1307.4 | 6000  | mi325, instinct mi325x
MI300X        | 192 | CDNA3     | -    | 1307.4 | 5300  | mi300, instinct mi300x
MI300A        | 128 | CDNA3     | -    | 980.6  | 5300  | mi300, instinct mi300a
MI250X        | 128 | CDNA2     | -    | 383    | 3277  | instinct mi250x
MI250         | 128 | CDNA2     | -    | 362.1  | 3277  | instinct mi250
MI210         | 64  | CDNA2     | -    | 181    | 1638  | instinct mi210
MI100         | 32  | CDNA      | -    | 92.3   | 1228.8| instinct mi100
PROW7900      | 48  | RDNA3     | -    | 122.6  | 864   | w7900, radeon pro w7900
RX7900XTX     | 24  | RDNA3     | -    | 122.8  | 960   | 7900xtx, radeon rx 7900 xtx
"""

#: Vast.ai's `gpu_name`: spaces, no maker's prefix, "S" for super. One spelling may stand for two memory sizes.
VAST = """
B300=B300 | B200=B200 | GH200=GH200 SXM | H200=H200 | H200-NVL=H200 NVL | H100-SXM=H100 SXM | H100-PCIE=H100 PCIE
H100-NVL=H100 NVL | A100-SXM-80GB=A100 SXM4 | A100-SXM-40GB=A100 SXM4 | A100-PCIE-80GB=A100 PCIE
A100-PCIE-40GB=A100 PCIE | A100X=A100X | A800-PCIE=A800 PCIE | A30=A30 | A40=A40 | A16=A16 | A10=A10 | A2=A2
L40S=L40S | L40=L40 | L4=L4 | T4=Tesla T4 | V100-32GB=Tesla V100 | V100-16GB=Tesla V100 | P100=Tesla P100
P40=Tesla P40 | K80=Tesla K80
RTX5090=RTX 5090 | RTX5080=RTX 5080 | RTX5070Ti=RTX 5070 Ti | RTX5060Ti=RTX 5060 Ti
RTX4090=RTX 4090 | RTX4090D=RTX 4090D | RTX4080S=RTX 4080S | RTX4080=RTX 4080 | RTX4070TiS=RTX 4070S Ti
RTX4070Ti=RTX 4070 Ti | RTX4060Ti=RTX 4060 Ti | RTX3090Ti=RTX 3090 Ti | RTX3090=RTX 3090
RTX3080Ti=RTX 3080 Ti | RTX3080=RTX 3080 | RTX3070=RTX 3070 | RTX3060=RTX 3060 | RTX2080Ti=RTX 2080 Ti
A6000=RTX A6000 | A5000=RTX A5000 | A4500=RTX A4500 | A4000=RTX A4000 | A2000=RTX A2000
RTX6000Ada=RTX 6000Ada | RTX5880Ada=RTX 5880Ada | RTX5000Ada=RTX 5000Ada | RTX4500Ada=RTX 4500Ada
RTX4000Ada=RTX 4000Ada | RTX2000Ada=RTX 2000Ada | RTXPRO6000-S=RTX PRO 6000 S | RTXPRO6000-WS=RTX PRO 6000 WS
RTXPRO6000-WS=RTX PRO 6000 | RTXPRO6000-MaxQ=RTX PRO 6000 Max-Q | RTXPRO5000=RTX PRO 5000
RTXPRO4500=RTX PRO 4500 | RTXPRO4000=RTX PRO 4000 | QuadroRTX8000=Q RTX 8000 | QuadroRTX6000=Q RTX 6000
TitanRTX=Titan RTX | MI300X=InstinctMI300X | MI250X=InstinctMI250X | PROW7900=PRO W7900 | RX7900XTX=RX 7900 XTX
"""

#: RunPod's GPU ids, sent and compared letter by letter: the double space in one of them is RunPod's own.
RUNPOD = """
B300=NVIDIA B300 SXM6 AC | B200=NVIDIA B200 | H200=NVIDIA H200 | H200-NVL=NVIDIA H200 NVL
H100-SXM=NVIDIA H100 80GB HBM3 | H100-PCIE=NVIDIA H100 PCIe | H100-NVL=NVIDIA H100 NVL
A100-SXM-80GB=NVIDIA A100-SXM4-80GB | A100-SXM-40GB=NVIDIA A100-SXM4-40GB | A100-PCIE-80GB=NVIDIA A100 80GB PCIe
A100-PCIE-40GB=NVIDIA A100-PCIE-40GB | A30=NVIDIA A30 | A40=NVIDIA A40 | L40S=NVIDIA L40S | L40=NVIDIA L40
L4=NVIDIA L4 | V100-16GB=Tesla V100-PCIE-16GB | V100-16GB=Tesla V100-FHHL-16GB | V100-16GB=Tesla V100-SXM2-16GB
V100-32GB=Tesla V100-SXM2-32GB | RTX5090=NVIDIA GeForce RTX 5090 | RTX5080=NVIDIA GeForce RTX 5080
RTX4090=NVIDIA GeForce RTX 4090 | RTX4080S=NVIDIA GeForce RTX 4080 SUPER | RTX4080=NVIDIA GeForce RTX 4080
RTX4070Ti=NVIDIA GeForce RTX 4070 Ti | RTX3090Ti=NVIDIA GeForce RTX 3090 Ti | RTX3090=NVIDIA GeForce RTX 3090
RTX3080Ti=NVIDIA GeForce RTX 3080 Ti | RTX3080=NVIDIA GeForce RTX 3080 | RTX3070=NVIDIA GeForce RTX 3070
A6000=NVIDIA RTX A6000 | A5000=NVIDIA RTX A5000 | A4500=NVIDIA RTX A4500 | A4500=NVIDIA  RTX A4500
A4000=NVIDIA RTX A4000 | A2000=NVIDIA RTX A2000 | RTX6000Ada=NVIDIA RTX 6000 Ada Generation
RTX5000Ada=NVIDIA RTX 5000 Ada Generation | RTX4000Ada=NVIDIA RTX 4000 Ada Generation
RTX4000Ada=NVIDIA RTX 4000 SFF Ada Generation | RTX2000Ada=NVIDIA RTX 2000 Ada Generation
RTXPRO6000-S=NVIDIA RTX PRO 6000 Blackwell Server Edition
RTXPRO6000-WS=NVIDIA RTX PRO 6000 Blackwell Workstation Edition
RTXPRO6000-MaxQ=NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition
RTXPRO4500=NVIDIA RTX PRO 4500 Blackwell | MI300X=AMD Instinct MI300X OAM
"""

#: Lambda's `gpu_description`.
LAMBDA = """
B200=B200 (180 GB SXM6) | GH200=GH200 (96 GB) | H100-SXM=H100 (80 GB SXM5) | H100-PCIE=H100 (80 GB PCIe)
A100-SXM-80GB=A100 (80 GB SXM4) | A100-SXM-40GB=A100 (40 GB SXM4) | A100-PCIE-40GB=A100 (40 GB PCIe)
A10=A10 (24 GB PCIe) | A6000=A6000 (48 GB) | A6000=RTX A6000 (48 GB) | QuadroRTX6000=RTX 6000 (24 GB)
QuadroRTX6000=Quadro RTX 6000 (24 GB) | V100-16GB=Tesla V100 (16 GB) | V100-16GB=V100 (16 GB)
"""

#: TensorDock's `v0Name` slugs; the same slugs without `-pcie` and the display names are understood as well.
TENSORDOCK = """
RTX5090=geforcertx5090-pcie-32gb | RTX4090=geforcertx4090-pcie-24gb | RTX4080=geforcertx4080-pcie-16gb
RTX4080S=geforcertx4080super-pcie-16gb | RTX3090=geforcertx3090-pcie-24gb | RTX3080Ti=geforcertx3080ti-pcie-12gb
A6000=rtxa6000-pcie-48gb | A5000=rtxa5000-pcie-24gb | A4000=rtxa4000-pcie-16gb | RTX6000Ada=rtx6000ada-pcie-48gb
RTX5000Ada=rtx5000ada-pcie-32gb | L40S=l40s-pcie-48gb | L40=l40-pcie-48gb | A100-PCIE-80GB=a100-pcie-80gb
A100-PCIE-40GB=a100-pcie-40gb | A100-SXM-80GB=a100-sxm4-80gb | H100-SXM=h100-sxm5-80gb | V100-16GB=v100-sxm2-16gb
"""

#: Kaggle's `machineShape`; the memory of its A100 and the variant of its H100 are not documented, so they are left out.
KAGGLE = """
T4=NvidiaTeslaT4 | T4=NvidiaTeslaT4Highmem | P100=NvidiaTeslaP100 | L4=NvidiaL4 | L4=NvidiaL4X1
RTXPRO6000-S=NvidiaRtxPro6000
"""

SPELLINGS = {"vast": VAST, "runpod": RUNPOD, "lambda": LAMBDA, "tensordock": TENSORDOCK, "kaggle": KAGGLE}
