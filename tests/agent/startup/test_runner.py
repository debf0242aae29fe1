"""The steps of a start-up as real processes: order, failures, limits, restarts, and the job that outlives them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bot.agent.job_process import CommandFolder
from bot.agent.own_folder import FOLDER
from bot.agent.startup.plan import DONE, FAILED, LOG, RUNNING, SKIPPED, STEPS, StartupProgress, read_plan
from bot.agent.startup.process import Startup
from bot.agent.startup.runner import Runner
from tests.agent.test_job_process import until


def step(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "script": script, "limit_s": 20, **more}


def plan_of(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"id": "start-1", "environment": {"WORD": "here"}, "steps": list(steps)}


def run(folder: Path, *steps: dict[str, Any], boot: str = "boot") -> dict[str, tuple[str, int | None]]:
    plan = read_plan(plan_of(*steps))
    assert plan is not None
    progress = StartupProgress.read(folder / STEPS)
    progress.begin(plan, boot)
    Runner(plan, progress, folder).run()
    return {name: (one.state, one.exit_code) for name, one in StartupProgress.read(folder / STEPS).steps.items()}


def test_a_failed_step_stops_only_those_that_need_it(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        step("one", "echo $WORD"),
        step("two", "echo wrong >&2; exit 3"),
        step("three", "exit 77"),
        step("four", "echo four", needs=["two"]),
        step("five", "echo five", needs=["one"]),
    )
    assert found == {
        "one": (DONE, 0),
        "two": (FAILED, 3),
        "three": (SKIPPED, 77),
        "four": (SKIPPED, None),
        "five": (DONE, 0),
    }
    assert (tmp_path / LOG).read_text() == "--- one\nhere\n--- two\nwrong\n--- three\n--- five\nfive\n"


def test_what_is_done_is_not_done_again_and_what_failed_is_tried_after_a_reboot(tmp_path: Path) -> None:
    steps = (step("good", "echo good"), step("bad", "echo bad; [ -e fixed ]"))
    run(tmp_path, *steps)
    assert run(tmp_path, *steps)["bad"] == (FAILED, 1)
    assert (tmp_path / LOG).read_text().count("good\n--- bad") == 1
    (tmp_path / "fixed").touch()
    assert run(tmp_path, *steps, boot="another") == {"good": (DONE, 0), "bad": (DONE, 0)}
    assert (tmp_path / LOG).read_text().count("--- good") == 1


def test_a_step_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    assert run(tmp_path, step("slow", "sleep 60 & wait", limit_s=0.2))["slow"] == (FAILED, 124)
    assert "took longer than 0 s" in (tmp_path / LOG).read_text()


def test_steps_have_no_token_of_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_SHOPPER_CHECKIN_TOKEN", "gpun_canary")
    run(tmp_path, step("shows", "env"))
    assert "canary" not in (tmp_path / LOG).read_text()


@pytest.mark.parametrize("said", [None, [], {}, {"id": "x"}, {"id": "x", "environment": {}, "steps": [{}]}])
def test_what_is_no_plan_is_not_run(said: object) -> None:
    assert read_plan(said) is None


def test_a_broken_file_of_progress_begins_anew(tmp_path: Path) -> None:
    (tmp_path / STEPS).write_text('{"plan_id": 1}')
    assert StartupProgress.read(tmp_path / STEPS).steps == {}


def test_the_process_runs_the_plan_starts_the_job_once_and_reports(tmp_path: Path) -> None:
    startup = Startup(tmp_path / "agent", {FOLDER: str(tmp_path / "agent")})
    assert not startup.is_known
    assert startup.report() == {}
    startup.take({"id": "no plan"})
    startup.keep_running()
    assert not startup.is_known
    steps = step("bad", "exit 2"), step("run", "echo began >>began; sleep 0.1; echo $WORD", job=True)
    startup.take(plan_of(*steps))
    assert startup.report() == {}
    command = [sys.executable, "-m", "bot.agent", "start-up"]
    for _ in range(2):
        subprocess.run(command, check=True, env={**os.environ, FOLDER: str(tmp_path / "agent")})
    place = CommandFolder(tmp_path / "job", "job.log")
    until(lambda: (now := place.read()) is not None and now.exit_code is not None)
    assert place.log.read_text() == "here\n"
    assert (tmp_path / "began").read_text() == "began\n"
    states = {one["name"]: (one["state"], one["exit_code"]) for one in startup.report()["steps"]}
    assert states == {"bad": (FAILED, 2), "run": (DONE, 0)}
    assert startup.logs() == (tmp_path / LOG,)
    startup.take(plan_of(step("another", "true")))
    assert "another" not in (tmp_path / "agent/startup_plan.json").read_text()


def test_the_reporter_starts_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu-shopper-agent"])
    startup = Startup(tmp_path / "agent", {FOLDER: str(tmp_path / "agent")})
    startup.take(plan_of(step("one", "true")))
    startup.keep_running()
    until(lambda: [one["state"] for one in startup.report().get("steps", [])] == [DONE])
    until(lambda: not startup.is_running)
    startup.keep_running()
    assert startup.logs() == ()


def test_a_step_that_runs_reports_its_seconds_until_now(tmp_path: Path) -> None:
    plan = read_plan(plan_of(step("one", "true"), step("two", "true")))
    assert plan is not None
    progress = StartupProgress.read(tmp_path / STEPS)
    progress.begin(plan, "boot")
    progress.note("one", state=DONE, seconds=3, exit_code=0, began_s=10.0)
    progress.note("two", state=RUNNING, began_s=100.0)
    startup = Startup(tmp_path / "agent", clock_s=lambda: 141.7)
    assert startup.report()["steps"] == [
        {"name": "one", "state": "done", "seconds": 3, "exit_code": 0},
        {"name": "two", "state": "running", "seconds": 41, "exit_code": None},
    ]


def test_an_empty_plan_is_kept_and_runs_nothing(tmp_path: Path) -> None:
    startup = Startup(tmp_path / "agent")
    startup.take({})
    startup.keep_running()
    assert (startup.is_known, startup.report()) == (True, {})
