"""What the agent reads of its machine, from files and NVML as they may be."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter

from bot.agent.gpus import NvmlGpu, NvmlGpus, look
from bot.agent.machine import Places, report
from bot.api.schemas.agent import CheckinIn
from bot.wire.checkin import LOG_CHARACTERS

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

NOTHING = NvmlGpus()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    keys = (tmp_path / "none.pub", tmp_path / "key.pub")
    return Places(keys, tmp_path / "startup", (tmp_path / "none.log", tmp_path / "start.log"), tmp_path)


def read(places: Places, seen: NvmlGpus = NOTHING) -> dict[str, Any]:
    """The report, which the service's own schema takes."""
    found = report(seen, places)
    TypeAdapter(CheckinIn).validate_python({"v": 2, "seq": 1, "machine": {**found, "interruption": ""}})
    return found


def test_a_bare_machine_says_what_there_is(places: Places) -> None:
    found = read(places)
    assert found.pop("disk_free_gb") >= 0
    assert found == {"gpus": [], "driver": "", "cuda": "", "host_key": ""}


def test_the_host_key_is_reported_without_its_comment(places: Places) -> None:
    places.host_keys[1].write_text(f"{KEY} root@machine\n")
    assert read(places)["host_key"] == KEY
    places.host_keys[1].write_text("no key")
    assert read(places)["host_key"] == ""


def test_strange_names_are_made_plain(places: Places) -> None:
    seen = NvmlGpus((NvmlGpu("<!channel> *RTX*\x1b[2J" + "x" * 99, 1, 1, 0.0, 40),) * 70, "57\n0", "`12.8`")
    found = read(places, seen)
    assert len(found["gpus"]) == 64
    assert found["gpus"][0]["model"].startswith("channel RTX2Jxx")
    assert (found["driver"], found["cuda"]) == ("570", "12.8")


def test_a_start_that_went_well_names_its_last_step_and_its_time(places: Places) -> None:
    places.startup.write_text("variables 0 100.5\ndirectories 0 103.0\n")
    places.logs[1].write_text("a log that nobody needs")
    found = read(places)
    assert (found["startup_step"], found["startup_s"], found["exit_code"]) == ("directories", 2, 0)
    assert "log_tail" not in found


def test_a_failed_step_is_named_with_the_end_of_the_log(places: Places) -> None:
    places.startup.write_text("variables 0 1\ndirectories 2 3\nproxy 0 4\nhalf a line")
    token = f"gpun_{'0' * 16}_{'x' * 43}"
    places.logs[1].write_text("begin" + "x" * 5000 + f"\nmkdir: no\x00 \x1b[31mspace\r\nexport T={token}\n")
    found = read(places)
    assert (found["startup_step"], found["exit_code"], found["startup_s"]) == ("directories", 2, 3)
    assert len(found["log_tail"]) == LOG_CHARACTERS
    assert found["log_tail"].endswith("mkdir: no [31mspace\n\nexport T=gpu…\n")


@pytest.mark.parametrize("text", ["", "a b c\n", "a 0 x\n", "\x00\xff\n", "one two\n"])
def test_a_broken_file_of_steps_says_nothing(places: Places, text: str) -> None:
    places.startup.write_text(text)
    assert "startup_step" not in read(places)


# ── NVML ───────────────────────────────────────────────────────────────────────────────────────────────────────────


#: What the driver keeps for itself on an idle H200, driver 580.159.04: nvidia-smi shows 0 MiB used.
RESERVED_BYTES = 615 << 20


class NVMLError(Exception):
    """What NVIDIA's library raises."""


def nvml(*, fails_at: str = "", text: type = str) -> SimpleNamespace:
    """NVIDIA's library as far as it is used, with two GPUs; the call named by `fails_at` fails."""

    def answer(name: str, value: Any) -> Any:
        def call(*_: object, version: int | None = None) -> Any:
            if name == fails_at or (version is not None and fails_at == "version 2"):
                raise NVMLError(name)
            return value[version] if name == "nvmlDeviceGetMemoryInfo" else value

        return call

    def word(value: str) -> str | bytes:
        return value.encode() if text is bytes else value

    answers = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": 2,
        "nvmlDeviceGetHandleByIndex": object(),
        "nvmlSystemGetCudaDriverVersion_v2": 12080,
        "nvmlSystemGetDriverVersion": word("570.86"),
        "nvmlDeviceGetName": word("NVIDIA H100"),
        "nvmlDeviceGetMemoryInfo": {
            None: SimpleNamespace(total=80 << 30, used=(1 << 30) + RESERVED_BYTES),
            2: SimpleNamespace(total=80 << 30, used=1 << 30),
        },
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=93),
        "nvmlDeviceGetTemperature": 51,
    }
    made = {name: answer(name, value) for name, value in answers.items()}
    return SimpleNamespace(**made, NVMLError=NVMLError, NVML_TEMPERATURE_GPU=0, nvmlMemory_v2=2)


@pytest.mark.parametrize("text", [str, bytes])
def test_gpus_are_read_through_nvml(monkeypatch: pytest.MonkeyPatch, text: type) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(text=text))
    found = look()
    assert found == NvmlGpus((NvmlGpu("NVIDIA H100", 81920, 1024, 93.0, 51),) * 2, "570.86", "12.8")


def test_an_old_driver_counts_what_it_keeps_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(fails_at="version 2"))
    assert [one.memory_used_mb for one in look().gpus] == [1024 + 615] * 2


@pytest.mark.parametrize("fails_at", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetUtilizationRates"])
def test_a_driver_that_fails_is_no_error(monkeypatch: pytest.MonkeyPatch, fails_at: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(fails_at=fails_at))
    found = look()
    assert found.gpus == ()
    assert fails_at in found.problem
