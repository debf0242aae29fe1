"""Judge in which number formats a GPU computes, by its architecture.

NVIDIA (CUDA C++ programming guide, "Compute Capabilities" and its table of tensor core types; the architecture white
papers): 16-bit tensor cores came with Volta (7.0), bf16 and TF32 with Ampere (8.0), fp8 with Ada (8.9) and Hopper
(9.0). vLLM refuses bf16 below 8.0 and any GPU below 7.0 with the same limits. AMD (ROCm documentation, "Precision
support"): bf16 and fp16 from CDNA and RDNA3 on, fp8 from CDNA3 on, TF32 on CDNA3 only. Few-bit weights as bitsandbytes
multiplies them (its installation guide, table of features): LLM.int8() from 7.5 on, NF4 and FP4 from 6.0 on; with ROCm
on CDNA2 and newer, and on RDNA3. MXFP4, gpt-oss' format: vLLM's recipe for it names Ampere and newer, MI300X and newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from bot.rules.sizing.workload import Precision, WorkKind, Workload
from bot.rules.viability.obstacles import Obstacle

#: The least compute capability whose tensor cores have a format; fp32 runs everywhere.
LEAST_CAPABILITY: Mapping[Precision, Decimal] = {
    **dict.fromkeys((Precision.BF16, Precision.AMP_BF16, Precision.TF32), Decimal("8.0")),
    **dict.fromkeys((Precision.FP16, Precision.AMP_FP16), Decimal("7.0")),
    Precision.FP8: Decimal("8.9"),
}
#: The least compute capability of bitsandbytes' kernels.
LEAST_QUANTIZED: Mapping[Precision, Decimal] = {
    Precision.INT8: Decimal("7.5"),
    Precision.INT4: Decimal("6.0"),
    Precision.MXFP4: Decimal("8.0"),
}

_SHORT = (Precision.BF16, Precision.AMP_BF16, Precision.FP16, Precision.AMP_FP16)
_OLD = frozenset([Precision.FP32, *_SHORT])
_QUANTIZED = frozenset(LEAST_QUANTIZED)
_INTEGERS = frozenset([Precision.INT8, Precision.INT4])
#: The formats of AMD's architectures; one that is not listed here has none of them but fp32.
AMD_FORMATS: Mapping[str, frozenset[Precision]] = {
    "CDNA": _OLD,
    "CDNA2": _OLD | _INTEGERS,
    "CDNA3": _OLD | _QUANTIZED | {Precision.TF32, Precision.FP8},
    "CDNA4": _OLD | _QUANTIZED | {Precision.FP8},
    "RDNA3": _OLD | _INTEGERS,
}


def unable(work: Workload, capability: Decimal | None, amd: str | None) -> Obstacle | None:
    """Return why a GPU cannot compute what a run needs; None when it can.

    `amd` is the architecture of an AMD GPU; for others `capability` is known, or they are not judged here.
    """
    if work.trains and work.number_format in _QUANTIZED:
        return Obstacle.INTEGERS
    formats = {work.number_format, *([Precision.INT4] if work.kind is WorkKind.QLORA else [])}
    for one in sorted(formats):
        if not _has(one, capability, amd):
            return Obstacle.QUANTIZED if one in _QUANTIZED else Obstacle.PRECISION
    return None


def _has(one: Precision, capability: Decimal | None, amd: str | None) -> bool:
    if one is Precision.FP32:
        return True
    if amd is not None:
        return one in AMD_FORMATS.get(amd, frozenset())
    least = LEAST_CAPABILITY.get(one) or LEAST_QUANTIZED[one]
    return capability is not None and capability >= least
