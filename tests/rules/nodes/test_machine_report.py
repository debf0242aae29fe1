"""What an agent reports of its machine, in one sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.rules.nodes.checkins import NodeStatus, after_checkin
from bot.rules.nodes.machine_report import activity_words, machine_line, startup_changed, startup_line
from bot.rules.policy.policy import Policy
from bot.wire.checkin import Checkin, GpuReport, MachineReport, StartupStep, StepOutcome
from bot.wire.codec import from_json, to_json
from tests.support.clock import START

CARD = GpuReport("NVIDIA GeForce RTX 4090", 24564, 61)
WHOLE = MachineReport(
    (CARD, GpuReport(CARD.model, CARD.memory_mb, 70), GpuReport("Tesla T4", 15360)), "570.1", "12.8", 1200
)


def test_alike_gpus_are_counted_and_the_hottest_is_named() -> None:
    assert machine_line(WHOLE) == (
        "It has 2 × NVIDIA GeForce RTX 4090 with 24 GB, 1 × Tesla T4 with 15 GB, driver 570.1, CUDA 12.8, "
        "1,200 GB of disk free, at most 70 °C."
    )


def test_what_is_not_known_is_not_said() -> None:
    assert machine_line(None) == machine_line(MachineReport()) == ""
    assert machine_line(MachineReport(exit_code=0, startup_step="proxy")) == ""


def test_a_failed_start_and_an_interruption_are_said() -> None:
    found = MachineReport(startup_step="directories", exit_code=1, interruption="it shuts down")
    assert machine_line(found) == (
        "Its start script failed at directories with exit code 1. It was interrupted: it shuts down."
    )


def test_it_is_read_as_it_was_stored() -> None:
    for is_whole in (False, True):
        assert from_json(MachineReport, to_json(WHOLE, is_whole=is_whole)) == WHOLE


def test_a_check_in_without_it_keeps_the_last_one() -> None:
    first = after_checkin(NodeStatus(), Checkin(seq=1, machine=WHOLE), Policy(), START)
    second = after_checkin(first, Checkin(seq=2), Policy(), START)
    assert second.machine == WHOLE
    third = after_checkin(second, Checkin(seq=3, machine=MachineReport(driver="9")), Policy(), START)
    assert third.machine == MachineReport(driver="9")


def test_the_steps_of_the_start_up_are_said() -> None:
    steps = (
        StartupStep("environment", StepOutcome.DONE, 1, 0),
        StartupStep("packages", StepOutcome.SKIPPED),
        StartupStep("repo", StepOutcome.FAILED, 3, 128),
        StartupStep("other", StepOutcome.RUNNING),
        StartupStep("run", StepOutcome.WAITING),
    )
    found = MachineReport(steps=steps)
    assert machine_line(found) == (
        "Steps: environment 1 s, packages skipped, repo failed with exit code 128, other runs now, run waits."
    )
    assert found.failed_step == steps[2]
    assert from_json(MachineReport, to_json(found)) == found


RUNNING = StartupStep("packages", StepOutcome.RUNNING, 41)
DONE = StartupStep("environment", StepOutcome.DONE, 1, 0)


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        ((), ""),
        ((DONE, RUNNING, StartupStep("run", StepOutcome.WAITING)), "Start-up: installing packages, 41 s"),
        ((StartupStep("model", StepOutcome.RUNNING, 75),), "Start-up: model, 1 min 15 s"),
        ((DONE, StartupStep("repo", StepOutcome.WAITING)), "Start-up: 1 of 2 steps done"),
        ((DONE, StartupStep("packages", StepOutcome.DONE, 71)), "Start-up done in 1 min 12 s"),
        ((DONE, StartupStep("packages", StepOutcome.SKIPPED)), "Start-up done in 1 s"),
        ((StartupStep("repo", StepOutcome.FAILED, 3, 128), RUNNING), "Start-up failed at repo (exit 128)"),
        ((StartupStep("repo", StepOutcome.FAILED),), "Start-up failed at repo"),
    ],
)
def test_the_start_up_in_one_line(steps: tuple[StartupStep, ...], line: str) -> None:
    assert startup_line(steps) == line


@pytest.mark.parametrize(
    ("step", "install", "doing"),
    [
        ("driver", "train", "checking the driver"),
        ("python packages", "train", "installing torch 2.8 and more"),
        ("python packages", "serve", "installing vLLM 0.11 and more"),
        ("python packages", "gone", "installing Python packages"),
        ("python packages", None, "installing Python packages"),
        ("serve", "serve", "starting the model server"),
        ("repo", None, "fetching the repository"),
    ],
)
def test_each_step_is_said_in_words(step: str, install: str | None, doing: str) -> None:
    assert startup_line((StartupStep(step, StepOutcome.RUNNING, 41),), install) == f"Start-up: {doing}, 41 s"


def test_only_another_state_is_a_change_of_the_start_up() -> None:
    first, later = MachineReport(steps=(DONE, RUNNING)), MachineReport(steps=(DONE, replace(RUNNING, seconds=101)))
    assert not startup_changed(first, later)
    assert not startup_changed(None, MachineReport())
    assert startup_changed(None, first)
    assert startup_changed(first, MachineReport(steps=(DONE, replace(RUNNING, state=StepOutcome.DONE))))


def test_how_busy_it_is_beside_its_gpus_is_said() -> None:
    found = MachineReport(cpu_percent=Decimal("3.4"), network_kb_s=1200, logins=0, last_login_at=START)
    assert activity_words(found) == [
        "CPU 3%",
        "network 1,200 kB/s",
        "no open login",
        f"last login {START:%Y-%m-%d %H:%M} UTC",
    ]
    assert machine_line(MachineReport(driver="9", logins=2)) == "It has driver 9. Last report: 2 open logins."
    assert activity_words(MachineReport()) == activity_words(None) == []


def test_a_login_of_the_future_was_now() -> None:
    later = MachineReport(last_login_at=START + timedelta(hours=1))
    for report, at in ((later, START), (MachineReport(last_login_at=START - timedelta(1)), START - timedelta(1))):
        machine = after_checkin(NodeStatus(), Checkin(seq=1, machine=report), Policy(), START).machine
        assert machine is not None
        assert machine.last_login_at == at


def test_a_step_is_done_only_once_it_is() -> None:
    found = MachineReport(steps=(StartupStep("serve", StepOutcome.RUNNING), StartupStep("driver", StepOutcome.DONE)))
    assert (found.is_done("serve"), found.is_done("driver"), found.is_done("run")) == (False, True, False)
