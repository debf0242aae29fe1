"""AMD's cards as the amdgpu driver describes them in files, and which of them this machine may use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bot.agent import amd_gpus, every_gpu
from bot.agent.gpus import NvmlGpu, NvmlGpus
from bot.agent.machine import ROOT
from tests.agent.test_machine import nvml

GIB = 1 << 30


def card(root: Path, number: int, said: dict[str, object] | None = None, *, node: str = "") -> Path:
    """One MI300X, unless `said` otherwise; its device `node` is there unless it is the one of another container."""
    device = root / f"sys/class/drm/card{number}/device"
    render = node or f"renderD{128 + number}"
    (device / "drm" / render).mkdir(parents=True)
    (device / "hwmon/hwmon3").mkdir(parents=True)
    (root / "dev/dri").mkdir(parents=True, exist_ok=True)
    if node != "renderD999":
        (root / "dev/dri" / render).touch()
    usual: dict[str, object] = {
        "vendor": "0x1002",
        "device": "0x74a1",
        "gpu_busy_percent": 87,
        "mem_info_vram_total": 192 * GIB,
    }
    usual |= {"mem_info_vram_used": 40 * GIB, "hwmon/hwmon3/temp2_input": 61500, "hwmon/hwmon3/temp3_input": 70000}
    for name, value in {**usual, **(said or {})}.items():
        (device / name).write_text(f"{value}\n")
    return device


def test_each_card_is_read_in_the_order_of_its_number(tmp_path: Path) -> None:
    card(tmp_path, 10, {"gpu_busy_percent": 0})
    card(tmp_path, 2, {"product_name": "AMD Instinct MI300X OAM", "hwmon/hwmon3/temp1_input": 55000})
    (tmp_path / "sys/class/drm/card2-DP-1").mkdir()
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    (tmp_path / "sys/module/amdgpu/version").write_text("6.10.5\n")
    assert amd_gpus.look(tmp_path) == NvmlGpus(
        (
            NvmlGpu("AMD Instinct MI300X OAM", 192 << 10, 40 << 10, 87.0, 55),
            NvmlGpu("AMD Instinct MI300X", 192 << 10, 40 << 10, 0.0, 61),
        ),
        "6.10.5",
    )


def test_other_makers_small_cards_and_those_of_other_containers_are_left_out(tmp_path: Path) -> None:
    card(tmp_path, 0, {"vendor": "0x10de"})
    card(tmp_path, 1, {"mem_info_vram_total": GIB // 2})
    card(tmp_path, 2, node="renderD999")
    assert amd_gpus.look(tmp_path) == NvmlGpus()
    assert amd_gpus.look(tmp_path / "nothing") == NvmlGpus()


def test_what_a_file_does_not_say_is_zero_and_an_unknown_card_has_a_plain_name(tmp_path: Path) -> None:
    device = card(tmp_path, 0, {"device": "0xffff", "gpu_busy_percent": "?"})
    for sensor in device.glob("hwmon/hwmon3/*"):
        sensor.unlink()
    (device / "mem_info_vram_used").unlink()
    assert amd_gpus.look(tmp_path).gpus == (NvmlGpu("AMD GPU", 192 << 10, 0, 0.0, 0),)


def test_a_machine_has_the_cards_of_one_maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT, str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", nvml(fails_at="nvmlInit"))
    assert "nvmlInit" in every_gpu.look().problem
    card(tmp_path, 0)
    assert [one.name for one in every_gpu.look().gpus] == ["AMD Instinct MI300X"]
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert {one.name for one in every_gpu.look().gpus} == {"NVIDIA H100"}
