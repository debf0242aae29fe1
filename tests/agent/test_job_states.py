"""What check-ins say of a command that was started as the job, how long its output gets, and states that lie."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.agent import job_process
from bot.agent.job_process import CommandFolder, CommandState
from bot.agent.job_report import job_report


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


@pytest.fixture
def place(tmp_path: Path) -> CommandFolder:
    return CommandFolder(tmp_path / "job", "job.log")


def run(place: CommandFolder, *argv: str) -> CommandState:
    return place.start("train-1", argv, place.folder.parent, {})


def said(place: CommandFolder) -> object:
    return job_report(place.folder.parent).get("job")


def test_a_check_in_says_how_the_job_goes(place: CommandFolder) -> None:
    assert said(place) is None
    state = run(place, "sleep", "30")
    assert said(place) == "running"
    assert place.pause(state)
    paused = place.read()
    assert paused is not None
    assert paused.word == "paused"
    assert said(place) == "paused"
    assert place.kill(state)
    until(lambda: said(place) == "failed")
    run(place, "true")
    until(lambda: said(place) == "done")


def test_a_newer_word_of_the_job_counts_and_an_older_one_does_not(place: CommandFolder) -> None:
    place.folder.mkdir()
    report = place.folder / "report.json"
    report.write_text(json.dumps({"job": "done", "step": 5}))
    os.utime(report, (1, 1))
    state = run(place, "sleep", "30")
    assert job_report(place.folder.parent) == {"job": "running"}
    report.write_text(json.dumps({"job": "done", "step": 7}))
    later_s = (place.folder / "state.json").stat().st_mtime + 5
    os.utime(report, (later_s, later_s))
    assert job_report(place.folder.parent) == {"job": "done", "step": 7}
    assert place.kill(state)


def test_a_job_that_a_restart_ended_is_not_reported_as_failed(place: CommandFolder) -> None:
    """Its owner stopped the machine and started it again; nothing says that the work failed."""
    place.folder.mkdir()
    place.write(CommandState("train-1", ("train",), 2**22 + 1, 5, "2026-01-01T00:00:00+00:00"))
    state = place.read()
    assert state is not None
    assert state.word == "lost"
    assert said(place) is None


def test_a_job_that_just_ended_has_not_failed_before_its_exit_code_is_written(place: CommandFolder) -> None:
    state = run(place, "sleep", "30")
    os.kill(state.runner_pid, signal.SIGSTOP)
    os.kill(state.pid, signal.SIGKILL)
    until(lambda: not state.has_process)
    assert said(place) == "running"
    os.kill(state.runner_pid, signal.SIGCONT)
    until(lambda: said(place) == "failed")
    assert job_report(place.folder.parent)["job_exit_code"] == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    "lie", [{"pid": 0, "ticks": None}, {"pid": 1, "ticks": job_process.ticks_of(1)}, {"pid": "1", "ticks": 1}]
)
def test_a_state_that_lies_ends_no_other_process(place: CommandFolder, lie: dict[str, object]) -> None:
    place.folder.mkdir()
    state = {"id": "train-1", "argv": ["x"], "started_at": "2026-01-01T00:00:00+00:00"} | lie
    (place.folder / "state.json").write_text(json.dumps(state))
    found = place.read()
    assert found is None or not place.kill(found)


def test_long_output_is_shortened_while_the_command_writes(tmp_path: Path) -> None:
    place = CommandFolder(tmp_path / "job", "job.log")
    place.folder.mkdir()
    log = os.open(place.log, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(log, b"x" * (job_process.LOG_BYTES + 1000) + b"last\n")
    job_process._shorten(log, place.log)
    assert place.log.stat().st_size == 0
    kept = place.log.with_name("job.log.1").read_bytes()
    assert (len(kept), kept[-5:]) == (job_process.LOG_BYTES, b"last\n")
    os.write(log, b"after\n")
    assert place.log.read_bytes() == b"after\n"
    job_process._shorten(log, place.log)
    assert place.log.read_bytes() == b"after\n"
    os.close(log)
