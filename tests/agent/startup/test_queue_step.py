"""The step of the start-up that hands over a queue: its order is kept once, and its process runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bot.agent.queue.order import read_order
from bot.agent.startup.plan import DONE, FAILED, LOG, StartupProgress, read_plan
from bot.agent.startup.runner import Runner
from tests.agent.queue.queues import results, until

STEP = {
    "name": "run",
    "script": 'eval "$QUEUE_COMMAND"',
    "limit_s": 20,
    "job": True,
    "queue": {"commands": [[1, "echo one"], [2, "exit 3"]], "gpus": 2, "done": 0, "failed": 0},
}


def run(folder: Path) -> Runner:
    plan = read_plan({"id": "start-1", "environment": {"WORD": "here"}, "steps": [STEP]})
    assert plan is not None
    progress = StartupProgress.read(folder / "startup_steps.json")
    progress.begin(plan, "boot")
    runner = Runner(plan, progress, folder)
    runner.run()
    return runner


def test_its_order_is_kept_and_its_process_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu-shopper-agent"])
    monkeypatch.setenv("GPU_SHOPPER_AGENT_FOLDER", str(tmp_path / "agent"))
    monkeypatch.setenv("PRIVATE", "of the machine")
    for name in ("agent", "job"):
        (tmp_path / name).mkdir()
    runner = run(tmp_path)
    assert runner.progress.steps["run"].state == DONE
    order = read_order(tmp_path / "queue")
    assert order is not None
    assert (order.id, order.environment["WORD"], "PRIVATE" in order.environment) == ("start-1-run", "here", False)
    until(lambda: results(tmp_path / "queue") == {1: 0, 2: 3})
    assert runner._queue is not None
    assert runner._queue._process is not None
    assert runner._queue._process.wait(20) == 0


def test_a_queue_that_cannot_be_kept_is_a_failed_step(tmp_path: Path) -> None:
    (tmp_path / "queue").write_text("in its way")
    runner = run(tmp_path)
    assert runner.progress.steps["run"].state == FAILED
    assert "The queue can't be kept" in (tmp_path / LOG).read_text()
