"""How fast a GPU multiplied, beside its data sheet."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from decimal import Decimal

import pytest

from bot.rules.instances.gpu_check import Bought
from bot.rules.instances.gpu_speed import SPEED_PROGRAM, Speed, judge_speed, read_speed
from ledger.kernel.end_reason import EndReason


def reached(*tflops: str) -> Speed:
    return Speed(tuple(Decimal(one) for one in tflops), "bf16")


@pytest.mark.parametrize(
    ("gpu", "tflops", "is_slow"),
    [
        ("RTX4090", ("158", "160"), False),
        ("RTX4090", ("82.6", "160"), False),  # Exactly half of 165.2.
        ("RTX4090", ("160", "82.5"), True),
        ("T4", ("23",), False),  # 70 W never allow the 65 of its sheet.
        ("T4", ("12",), True),
        ("K80", ("0.1",), False),  # No rate is published.
        ("Unheard-Of", ("0.1",), False),
    ],
)
def test_half_of_the_data_sheet_is_expected(gpu: str, tflops: tuple[str, ...], is_slow: bool) -> None:
    found = judge_speed(Bought(gpu, len(tflops)), reached(*tflops))
    assert (found is not None) is is_slow


def test_the_slowest_gpu_is_named_with_both_rates() -> None:
    found = judge_speed(Bought("RTX4090", 2), reached("160", "16.3"))
    assert found is not None
    assert (found.code, found.may_settle) == (EndReason.THROTTLED, False)
    assert found.sentence == (
        "2 × RTX4090 bought, but GPU 1 reached 16.3 TFLOP/s in a test. Its data sheet says 165.2, and at least 82.6 is "
        "expected."
    )


def test_what_the_program_prints_is_read() -> None:
    said = {"tflops": [151.2, 150], "format": "fp16", "torch": "2.7.1"}
    assert read_speed(f"a warning\n{json.dumps(said)}\n") == Speed((Decimal("151.2"), Decimal(150)), "fp16")


@pytest.mark.parametrize(
    "output",
    [
        "",
        "bash: python3: command not found",
        '{"tflops": []}',
        '{"tflops": 5}',
        '{"tflops": ["x"]}',
        '{"tflops": [NaN]}',
        '{"tflops": [Infinity]}',
        '{"tflops": [-1]}',
        '{"tflops": [1e300]}',
        '{"tflops": [[]]}',
        "[1]",
        "5",
        json.dumps({"tflops": [1] * 65}),
        "[" * 60_000,
    ],
)
def test_anything_else_is_no_measurement(output: str) -> None:
    assert read_speed(output) is None


def test_the_program_runs_without_torch_and_says_that_nothing_was_measured() -> None:
    """It runs under whatever Python a machine has, so it is held to the grammar of an old one."""
    ast.parse(SPEED_PROGRAM, feature_version=(3, 8))
    command = [sys.executable, "-I", "-"]
    ran = subprocess.run(command, input=SPEED_PROGRAM, capture_output=True, text=True, check=True)  # Ours.
    assert json.loads(ran.stdout) == {"tflops": [], "format": ""}
    assert read_speed(ran.stdout) is None
