"""Commands that outlive their starter: output, exit code, pause, resume, stop, and what a restart leaves."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bot.agent import job_process
from bot.agent.job_process import CANNOT_RUN, CommandFolder, CommandState, ticks_of

WAITS = "import time; print('begun', flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandFolder:
    monkeypatch.setattr(sys, "argv", ["gpu-shopper-agent"])
    return CommandFolder(tmp_path / "job", "job.log")


def until(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait until it holds."""
    end_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end_s
        os.sched_yield()


def start(place: CommandFolder, *argv: str, name: str = "one", **environment: str) -> CommandState:
    return place.start(name, argv, place.folder.parent, environment)


def ended(place: CommandFolder) -> CommandState:
    """Wait for the end and return the last state."""
    until(lambda: (now := place.read()) is not None and now.exit_code is not None)
    state = place.read()
    assert state is not None
    return state


def test_output_environment_folder_and_exit_code_are_kept(place: CommandFolder) -> None:
    code = "import os; print(os.environ['WORD'], os.getcwd()); raise SystemExit(7)"
    state = start(place, sys.executable, "-c", code, WORD="here")
    assert state.id == "one"
    last = ended(place)
    assert (last.exit_code, last.paused, last.problem) == (7, False, "")
    assert last.ended_at is not None
    assert place.log.read_text() == f"here {place.folder.parent}\n"


def test_no_shell_reads_the_words(place: CommandFolder) -> None:
    start(place, "echo", "$(touch x); `touch y` && touch z > w")
    assert ended(place).exit_code == 0
    assert place.log.read_text() == "$(touch x); `touch y` && touch z > w\n"
    assert {one.name for one in place.folder.iterdir()} == {"state.json", "job.log"}


def test_a_program_that_is_not_there_says_so(place: CommandFolder) -> None:
    state = start(place, "no-such-program")
    assert state.exit_code == CANNOT_RUN
    assert "No such file" in state.problem
    assert "no-such-program can't be started" in place.log.read_text()


def test_a_second_start_keeps_the_log_of_the_first(place: CommandFolder) -> None:
    start(place, "echo", "first")
    ended(place)
    start(place, "echo", "second", name="two")
    until(lambda: (now := place.read()) is not None and now.id == "two" and now.exit_code is not None)
    assert place.log.with_name("job.log.1").read_text() == "first\n"
    assert place.log.read_text() == "second\n"


def test_pause_resume_and_stop(place: CommandFolder) -> None:
    state = start(place, sys.executable, "-c", WAITS)
    until(lambda: place.log.read_text() == "begun\n")
    assert place.pause(state)
    until(lambda: Path(f"/proc/{state.pid}/stat").read_text().split()[2] == "T")
    paused = place.read()
    assert paused is not None
    assert paused.paused
    assert paused.is_running
    assert place.resume(state)
    until(lambda: Path(f"/proc/{state.pid}/stat").read_text().split()[2] != "T")
    assert place.pause(state)
    assert place.stop(state)  # It is paused and ends all the same.
    assert ended(place).exit_code == -15
    assert not place.stop(state)
    assert not place.pause(state)


def test_what_does_not_stop_is_killed(place: CommandFolder) -> None:
    state = start(place, sys.executable, "-c", STUBBORN)
    until(lambda: place.log.read_text() == "begun\n")
    assert place.stop(state)
    assert place.kill(state)
    assert ended(place).exit_code == -9


def test_another_process_with_the_same_number_is_left_alone(place: CommandFolder) -> None:
    """After a restart of the machine the number may be anybody's."""
    state = start(place, "echo", "gone")
    ended(place)
    reused = replace(state, pid=os.getpid(), exit_code=None, runner_pid=0)
    assert ticks_of(os.getpid()) != reused.ticks
    assert not reused.is_running
    assert not place.kill(reused)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"id": 1}', "[" * 100_000, '{"argv": 5}'])
def test_a_state_that_somebody_else_wrote_is_none(place: CommandFolder, text: str) -> None:
    place.folder.mkdir()
    (place.folder / "state.json").write_text(text)
    assert place.read() is None


def test_links_and_pipes_are_not_followed(place: CommandFolder, tmp_path: Path) -> None:
    place.folder.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (place.folder / "state.json").symlink_to(secret)
    place.log.symlink_to(secret)
    start(place, "echo", "written")
    ended(place)
    assert secret.read_text() == "{}"
    (place.folder / "pipe").unlink(missing_ok=True)
    os.mkfifo(place.folder / "pipe")
    with pytest.raises(OSError, match="not a file"):
        job_process.content(place.folder / "pipe", 10)
