"""The GPUs are read in a process that ends, and a driver that hangs or a reading that fails is no error."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import pytest

from bot.agent.every_gpu import GpuReader, look, main
from bot.agent.gpus import NvmlGpu, NvmlGpus

SEEN = NvmlGpus((NvmlGpu("NVIDIA H200", 143_771, 882, 99.0, 54),), "580.159.04", "13.0")


def reader(program: str, timeout_s: float = 20.0) -> GpuReader:
    return GpuReader([sys.executable, "-c", program], timeout_s)


def test_what_the_process_prints_is_what_was_seen() -> None:
    assert reader(f"print({json.dumps(asdict(SEEN))!r})").look() == SEEN


def test_the_process_prints_what_this_one_sees(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert reader(f"print({capsys.readouterr().out!r})").look() == look()


@pytest.mark.parametrize("said", ["", "{}", "[]", "null", '{"gpus": [1]}', '{"gpus": [], "other": 1}'])
def test_a_reading_that_fails_is_no_error(said: str) -> None:
    found = reader(f"print({said!r}); raise SystemExit(3)").look()
    assert found == NvmlGpus(problem="The reading of the GPUs ended with 3.")


def test_a_program_that_is_missing_is_no_error() -> None:
    assert "can't be read" in GpuReader(["/no/such/program"]).look().problem


def test_a_driver_that_hangs_is_not_asked_again_while_it_hangs() -> None:
    hangs = reader("import sys; sys.stdin = None; import signal; signal.pause()", timeout_s=0.01)
    assert "did not answer within 0.01 s" in hangs.look().problem
    first = hangs._stuck
    assert first is not None
    first.wait()
    assert "did not answer" in hangs.look().problem
    second = hangs._stuck
    assert second is not None
    assert second is not first
    second.wait()
