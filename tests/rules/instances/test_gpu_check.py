"""What a machine shows of its GPUs beside what was bought."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from bot.rules.instances.gpu_check import Bought, SeenGpu, judge, login_failed, read
from ledger.kernel.end_reason import EndReason
from ledger.kernel.login_problem import LoginProblem
from providers.gpus.table import GPUS
from providers.images import Vendor

TWO_4090 = Bought("RTX4090", 2, Decimal(24), Decimal("12.8"))
ROW = "NVIDIA GeForce RTX 4090, 24564, 570.124.06\n"
VERSIONS = "Driver Version                            : 570.124.06\nCUDA Version                              : 12.8\n"
GOOD = ROW * 2 + VERSIONS


def verdict(bought: Bought, output: str) -> tuple[str, str] | None:
    found = judge(bought, read(bought.vendor, output), output)
    return (found.code.value, found.sentence) if found is not None else None


def test_the_output_of_nvidia_smi_is_read() -> None:
    seen = read(Vendor.NVIDIA, GOOD)
    assert seen.gpus == (SeenGpu("RTX4090", Decimal("24.0")),) * 2
    assert (seen.driver, seen.cuda) == ("570.124.06", Decimal("12.8"))
    assert judge(TWO_4090, seen, GOOD) is None
    # A tool that was started for the first time may print more lines, and so may the login itself.
    assert judge(TWO_4090, read(Vendor.NVIDIA, f"Welcome to vast.ai\n\n{GOOD}"), GOOD) is None


@pytest.mark.parametrize(
    ("output", "code", "sentence"),
    [
        (ROW + VERSIONS, "gpu_missing", "2 × RTX4090 bought, but the machine shows 1 GPU."),
        ("No devices were found\n", "gpu_missing", "2 × RTX4090 bought, but the machine shows no GPU."),
        ("", "gpu_missing", "2 × RTX4090 bought, but the machine shows no GPU."),
        (
            "NVIDIA GeForce RTX 3090, 24576, 570.124.06\n" * 2 + VERSIONS,
            "wrong_gpus",
            "2 × RTX4090 bought, but the machine has 2 × RTX3090.",
        ),
        (
            ROW + "NVIDIA GeForce RTX 3090, 24576, 570.124.06\n",
            "wrong_gpus",
            "2 × RTX4090 bought, but the machine has 1 × RTX3090.",
        ),
        (
            ROW + "NVIDIA GeForce RTX 4090, 12282, 570.124.06\n",
            "low_gpu_memory",
            "2 × RTX4090 with 24 GB each bought, but a GPU of the machine has 12.0 GB of memory.",
        ),
        (
            GOOD.replace("12.8", "12.4"),
            "old_driver",
            "2 × RTX4090 bought, but the machine's driver 570.124.06 supports CUDA 12.4 and the job needs 12.8.",
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124\n",
            "driver_broken",
            "2 × RTX4090 bought, but its GPU driver does not work: the driver and its library have different versions.",
        ),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it runs.\n",
            "driver_broken",
            "2 × RTX4090 bought, but its GPU driver does not work: the tool can't reach the driver.",
        ),
        (
            ROW + "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n",
            "driver_broken",
            "2 × RTX4090 bought, but its GPU driver does not work: a GPU does not respond.",
        ),
        (
            "bash: line 1: nvidia-smi: command not found\n",
            "driver_broken",
            "2 × RTX4090 bought, but its GPU driver does not work: the tool nvidia-smi or rocm-smi is missing.",
        ),
    ],
)
def test_each_failed_delivery_has_its_code_and_its_sentence(output: str, code: str, sentence: str) -> None:
    assert verdict(TWO_4090, output) == (code, sentence)


def test_only_what_may_still_come_is_waited_for() -> None:
    waits = {
        code
        for output in (ROW, "version mismatch", ROW.replace("4090", "3090") * 2, ROW * 2 + "CUDA Version : 11.4")
        if (found := judge(TWO_4090, read(Vendor.NVIDIA, output), output)) is not None and (code := found.code)
        if found.may_settle
    }
    assert waits == {EndReason.GPU_MISSING, EndReason.DRIVER_BROKEN}


@pytest.mark.parametrize(
    ("bought", "name", "mib", "is_right"),
    [
        ("A100-PCIE-40GB", "NVIDIA A100-SXM4-40GB", 40960, True),  # As fast.
        ("A100-PCIE-40GB", "NVIDIA A100-SXM4-80GB", 81920, True),  # More than was bought.
        ("A100-SXM-80GB", "NVIDIA A100-SXM4-40GB", 40960, False),
        ("H100-SXM", "NVIDIA H100 PCIe", 81559, False),  # Three quarters of the speed.
        ("H100-PCIE", "NVIDIA H100 80GB HBM3", 81559, True),
        ("L40S", "NVIDIA L40", 46068, False),
        ("T4", "Tesla T4", 15360, True),
        ("A10", "NVIDIA A10", 22731, True),
        ("B300", "NVIDIA B300 SXM6 AC", 275040, True),
        # A spelling that the table lacks is no other GPU, but its memory counts.
        ("RTX4090", "NVIDIA Graphics Device", 24564, True),
        ("RTX4090", "NVIDIA Graphics Device", 8192, False),
        ("Unheard-Of", "NVIDIA GeForce RTX 4090", 24564, True),
    ],
)
def test_variants_and_spellings_of_one_gpu(bought: str, name: str, mib: int, is_right: bool) -> None:
    assert (verdict(Bought(bought, 1), f"{name}, {mib}, 570.124.06\n") is None) is is_right


def test_every_gpu_of_the_table_passes_as_itself() -> None:
    for gpu in GPUS.values():
        if gpu.vendor is Vendor.NVIDIA and "," not in gpu.name:
            output = f"{gpu.name}, {int(gpu.memory_gb * 1024 * Decimal('0.92'))}, 570.1\n"
            assert verdict(Bought(gpu.name, 1, Decimal(gpu.memory_gb)), output) is None, gpu.name


def test_the_output_of_rocm_smi_is_read_and_two_dies_are_one_card() -> None:
    def shown(series: str, count: int, gb: int) -> str:
        card = {"Card Series": series, "VRAM Total Memory (B)": str(gb * 1024**3)}
        return json.dumps({**{f"card{n}": card for n in range(count)}, "system": {"Driver version": "6.10.5"}})

    bought = Bought("MI300X", 2, Decimal(192))
    seen = read(Vendor.AMD, shown("AMD Instinct MI300X", 2, 192))
    assert seen.gpus == (SeenGpu("MI300X", Decimal("192.0")),) * 2
    assert (seen.driver, seen.cuda) == ("6.10.5", None)
    assert judge(bought, seen) is None
    assert verdict(bought, shown("AMD Instinct MI300X", 1, 192)) is not None
    assert verdict(Bought("MI250X", 1, Decimal(128)), shown("AMD Instinct MI250X", 2, 64)) is None
    assert verdict(bought, "WARNING: no JSON {") is not None
    assert verdict(bought, '{"card0": {"VRAM Total Memory (B)": "much"}, "system": 5}') is not None
    assert verdict(bought, "[1]") is not None


def test_nothing_that_a_machine_prints_reaches_a_sentence() -> None:
    for output in ("<!channel> *GPU*, 1, 2\n", "not found <@U1>\n", "NVIDIA <!here>, 99999, 1.1\nversion mismatch <x>"):
        found = verdict(TWO_4090, output)
        assert found is not None
        assert "<" not in found[1]


@pytest.mark.parametrize("problem", LoginProblem)
def test_a_login_that_never_worked_says_why(problem: LoginProblem) -> None:
    code, sentence = login_failed(problem, "15 minutes")
    wrong_key = problem is LoginProblem.WRONG_HOST_KEY
    assert code is (EndReason.WRONG_HOST_KEY if wrong_key else EndReason.NO_LOGIN)
    assert sentence.startswith("GPU Shopper could not check the machine within 15 minutes: ")
