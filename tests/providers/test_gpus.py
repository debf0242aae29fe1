"""The GPU table: every spelling leads to its GPU, and the numbers agree with each other."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.gpus.data import SPELLINGS
from providers.gpus.table import GPUS, GpuModel, canonical, closest, lookup, spellings


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("4090", {"RTX4090"}),
        ("rtx4090", {"RTX4090"}),
        ("RTX 4090", {"RTX4090"}),
        ("NVIDIA GeForce RTX 4090", {"RTX4090"}),
        ("4090 24GB", {"RTX4090"}),
        ("a100", {"A100-SXM-80GB", "A100-SXM-40GB", "A100-PCIE-80GB", "A100-PCIE-40GB"}),
        ("A100-80GB", {"A100-SXM-80GB", "A100-PCIE-80GB"}),
        ("a100_80g", {"A100-SXM-80GB", "A100-PCIE-80GB"}),
        ("A100 SXM4 40GB", {"A100-SXM-40GB"}),
        ("a100sxm480gb", {"A100-SXM-80GB"}),
        ("h100", {"H100-SXM", "H100-PCIE", "H100-NVL"}),
        ("H100 SXM", {"H100-SXM"}),
        ("H100 SXM5", {"H100-SXM"}),
        ("H100 80GB", {"H100-SXM", "H100-PCIE"}),
        ("h200", {"H200"}),
        ("l40s", {"L40S"}),
        ("L40", {"L40"}),
        ("v100", {"V100-16GB", "V100-32GB"}),
        ("rtx 6000", {"RTX6000Ada", "QuadroRTX6000"}),
        ("a6000", {"A6000"}),
        ("pro6000", {"RTXPRO6000-S", "RTXPRO6000-WS", "RTXPRO6000-MaxQ"}),
        ("4080 super", {"RTX4080S"}),
        ("mi300x", {"MI300X"}),
        ("banana", set()),
        ("", set()),
        ("nvidia", set()),
    ],
)
def test_what_people_mean(typed: str, names: set[str]) -> None:
    assert set(lookup(typed)) == names


@pytest.mark.parametrize(
    ("typed", "first"), [("rtx4091", "RTX4090"), ("a101", "A10"), ("h1000", "H100-SXM"), ("l40x", "L40")]
)
def test_did_you_mean(typed: str, first: str) -> None:
    found = closest(typed)
    assert found[0] == first
    assert len(found) <= 3


def test_nothing_is_near_nonsense() -> None:
    assert closest("xyzzy") == ()


@pytest.mark.parametrize(
    ("cloud", "spelling", "memory", "name"),
    [
        ("vast", "A100 SXM4", "80", "A100-SXM-80GB"),
        ("vast", "A100 SXM4", "39.6", "A100-SXM-40GB"),
        ("vast", "A100 SXM4", None, None),
        ("vast", "A100 SXM4", "60", None),
        ("vast", "RTX 4090", "48", "RTX4090"),
        ("vast", "RTX 4070S Ti", None, "RTX4070TiS"),
        ("runpod", "NVIDIA  RTX A4500", None, "A4500"),
        ("runpod", "NVIDIA H100 80GB HBM3", None, "H100-SXM"),
        ("lambda", "8x H100 (80 GB SXM5)", None, "H100-SXM"),
        ("lambda", "RTX 6000 (24 GB)", None, "QuadroRTX6000"),
        ("tensordock", "l40s-48gb", None, "L40S"),
        ("tensordock", "NVIDIA GeForce RTX 5090 PCIe 32GB", None, "RTX5090"),
        ("kaggle", "NvidiaTeslaT4", None, "T4"),
        ("elsewhere", "NVIDIA H200", None, "H200"),
        ("elsewhere", "V100", "16", "V100-16GB"),
        ("vast", "GTX 1080", None, None),
    ],
)
def test_what_clouds_mean(cloud: str, spelling: str, memory: str | None, name: str | None) -> None:
    assert canonical(cloud, spelling, None if memory is None else Decimal(memory)) == name


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_every_spelling_of_every_cloud_leads_back(gpu: GpuModel) -> None:
    assert set(gpu.spellings) <= set(SPELLINGS)
    for cloud, spelled in gpu.spellings.items():
        assert spellings(cloud, gpu.name) == spelled
        for spelling in spelled:
            assert canonical(cloud, spelling, Decimal(gpu.memory_gb)) == gpu.name
            assert gpu.name in lookup(spelling) or cloud in ("kaggle", "lambda", "tensordock")
    assert lookup(gpu.name) == (gpu.name,)


def test_every_listed_name_is_in_the_table() -> None:
    for block in SPELLINGS.values():
        entries = [entry for line in block.strip().splitlines() for entry in line.split("|")]
        assert {entry.strip().partition("=")[0] for entry in entries} <= set(GPUS)


def test_an_unknown_gpu_or_cloud_has_no_spelling() -> None:
    assert spellings("vast", "RTX9090") == ()
    assert spellings("elsewhere", "RTX4090") == ()


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_the_numbers_are_plausible(gpu: GpuModel) -> None:
    assert " " not in gpu.name
    assert 8 <= gpu.memory_gb <= 288
    amd = gpu.architecture.startswith(("CDNA", "RDNA"))
    assert (gpu.compute_capability is None) is amd
    assert gpu.peak_bf16_tflops is None or 0 < gpu.peak_bf16_tflops <= 2500
    assert gpu.bandwidth_gb_s is not None
    assert 100 < gpu.bandwidth_gb_s <= 8000


def test_the_architecture_goes_with_the_compute_capability() -> None:
    """NVIDIA's table: https://developer.nvidia.com/cuda-gpus."""
    capabilities = {
        "Blackwell": {"10.0", "10.3", "12.0"},
        "Hopper": {"9.0"},
        "Ada": {"8.9"},
        "Ampere": {"8.0", "8.6"},
        "Turing": {"7.5"},
        "Volta": {"7.0"},
        "Pascal": {"6.0", "6.1"},
        "Kepler": {"3.7"},
    }
    for gpu in GPUS.values():
        if gpu.compute_capability is not None:
            assert str(gpu.compute_capability) in capabilities[gpu.architecture]


#: Dense bf16 TFLOP/s and GB/s as karpathy/nanochat @92d63d4 (MIT) lists them, where one row means one variant.
PUBLISHED = {
    "B200": (2250, 8000),
    "H200": (989, 4800),
    "H200-NVL": (836, None),
    "H100-SXM": (989, 3350),
    "H100-PCIE": (756, 2000),
    "H100-NVL": (835, 3900),
    "A40": (149.7, 696),
    "A30": (165, 933),
    "L40S": (362, 864),
    "L4": (121, 300),
    "MI300X": (1307.4, 5300),
    "MI250X": (383, 3280),
    "RTX5090": (209.5, 1790),
    "RTX4090": (165.2, 1010),
    "RTX3090": (71, 936),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_numbers_agree_with_a_published_table(name: str) -> None:
    tflops, bandwidth = PUBLISHED[name]
    found = GPUS[name]
    assert found.peak_bf16_tflops is not None
    assert float(found.peak_bf16_tflops) == tflops
    assert found.bandwidth_gb_s is not None
    # nanochat rounds bandwidths to three digits.
    assert bandwidth is None or abs(float(found.bandwidth_gb_s) - bandwidth) <= 0.005 * bandwidth


@given(text=st.text(), memory=st.none() | st.decimals(min_value=0, max_value=10**6))
def test_no_text_breaks_a_look_up(text: str, memory: Decimal | None) -> None:
    assert set(lookup(text)) <= set(GPUS)
    name = canonical("vast", text, memory)
    assert name is None or name in GPUS
    assert set(closest(text[:40])) <= set(GPUS)
