"""A command that failed runs again: so often, after these exit codes, and never where somebody ends it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bot.agent.job_files import JobFiles
from bot.agent.job_process import CommandFolder, CommandState
from bot.agent.job_report import job_report
from bot.agent.retry_policy import ONCE, RetryPolicy, shell_code
from tests.agent.test_job_process import ended, until

#: Counts its starts in a file, and succeeds from the third one on.
THIRD = 'echo start >>starts; [ "$(grep -c start starts)" -ge 3 ] || exit 75'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandFolder:
    monkeypatch.setattr(sys, "argv", ["gpu-shopper-agent"])
    return CommandFolder(tmp_path / "job", "job.log")


def start(place: CommandFolder, script: str, retry: RetryPolicy) -> CommandState:
    folder = place.folder.parent
    return place.start("one", ["/bin/sh", "-c", script], folder, {}, retry, folder / "asks")


def starts(place: CommandFolder) -> int:
    return (place.folder.parent / "starts").read_text().count("start")


@pytest.mark.parametrize(
    ("retry", "attempt", "code", "repeats"),
    [
        (ONCE, 1, 1, False),
        (RetryPolicy(3), 1, 1, True),
        (RetryPolicy(3), 3, 1, False),
        (RetryPolicy(3), 1, 0, False),
        (RetryPolicy(3, (75,)), 1, 75, True),
        (RetryPolicy(3, (75,)), 1, 76, False),
    ],
)
def test_when_it_runs_again(retry: RetryPolicy, attempt: int, code: int, repeats: bool) -> None:
    assert retry.repeats(attempt, code) is repeats
    assert RetryPolicy.of(retry.to_json()) == retry


def test_exit_codes_are_those_of_a_shell() -> None:
    assert [shell_code(one) for one in (0, 3, -9, -15)] == [0, 3, 137, 143]


def test_it_runs_until_it_succeeds_and_each_attempt_is_in_one_log(place: CommandFolder) -> None:
    start(place, f"{THIRD}; echo good", RetryPolicy(5, (75,)))
    last = ended(place)
    assert (last.exit_code, last.attempt, starts(place)) == (0, 3, 3)
    assert place.log.read_text() == "--- exit code 75; attempt 2 begins\n--- exit code 75; attempt 3 begins\ngood\n"
    assert job_report(place.folder.parent) == {"job": "done", "job_exit_code": 0, "job_attempt": 3}


def test_the_last_attempt_and_another_exit_code_are_its_end(place: CommandFolder) -> None:
    start(place, THIRD, RetryPolicy(2))
    last = ended(place)
    assert (last.exit_code, last.attempt, starts(place)) == (75, 2, 2)
    (place.folder.parent / "starts").unlink()
    place.start("two", ["/bin/sh", "-c", THIRD], place.folder.parent, {}, RetryPolicy(5, (3,)))
    until(lambda: (now := place.read()) is not None and now.id == "two" and now.exit_code is not None)
    assert starts(place) == 1


def test_what_a_person_stops_is_not_started_again(place: CommandFolder) -> None:
    state = start(place, "echo start >>starts; sleep 60", RetryPolicy(5))
    until((place.folder.parent / "starts").exists)
    assert place.stop(state)
    assert ended(place).exit_code == -15
    assert starts(place) == 1


def test_a_machine_that_is_about_to_end_starts_nothing_again(place: CommandFolder) -> None:
    files = JobFiles(place.folder.parent)
    files.write_asks(["save", "upload", "stop"])
    assert files.asks("stop")
    start(place, THIRD, RetryPolicy(5))
    assert (ended(place).attempt, starts(place)) == (1, 1)
    files.write_asks(["save"])
    place.start("two", ["/bin/sh", "-c", THIRD], place.folder.parent, {}, RetryPolicy(5), files.folder / "asks")
    until(lambda: (now := place.read()) is not None and now.id == "two" and now.exit_code is not None)
    assert starts(place) == 3


def test_a_program_that_vanishes_between_two_attempts_is_a_failure(place: CommandFolder, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nrm $0\nexit 1\n")
    program.chmod(0o755)
    place.start("one", [str(program)], tmp_path, {}, RetryPolicy(3))
    last = ended(place)
    assert (last.exit_code, last.attempt) == (127, 2)
