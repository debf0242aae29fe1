"""The files between the agent and the job on its machine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from bot.agent.job_files import JobFiles
from bot.agent.job_process import CommandFolder
from bot.agent.job_report import job_report
from bot.api.schemas.agent import CheckinIn

WHOLE: dict[str, Any] = {
    "job": "running",
    "step": 12000,
    "target_step": 50000,
    "tokens_per_s": 4200.5,
    "queue": {"waiting": 4, "running": 1, "done": 7, "failed": 0},
    "checkpoint": {"step": 11500, "at": "2026-03-02T09:40:00Z"},
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda some: st.lists(some, max_size=2),
)


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    made = JobFiles(tmp_path / "opt")
    made.prepare()
    made.prepare()
    return made


def written(files: JobFiles, said: object) -> dict[str, Any]:
    """What is reported of this text, which the service takes."""
    text = said if isinstance(said, str) else json.dumps(said)
    (files.folder / "job/report.json").write_text(text)
    found = job_report(files.folder)
    TypeAdapter(CheckinIn).validate_json(json.dumps({"v": 2, "seq": 1, **found}))
    return found


def test_what_a_job_writes_is_reported(files: JobFiles) -> None:
    assert job_report(files.folder) == {}
    assert written(files, WHOLE) == WHOLE
    assert (files.folder / "job").stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize(
    "wrong",
    [
        {"job": "resting"},
        {"job": ["done"]},
        {"step": -1},
        {"step": True},
        {"step": 2**53},
        {"target_step": "7"},
        {"tokens_per_s": -1},
        {"tokens_per_s": True},
        {"tokens_per_s": float("nan")},
        {"tokens_per_s": float("inf")},
        {"queue": 7},
        {"queue": []},
        {"queue": {}},
        {"queue": {"done": -1, "failed": True, "waiting": 10**9 + 1, "running": "2", "other": 1}},
        {"checkpoint": 7},
        {"checkpoint": {"step": 1}},
        {"checkpoint": {"step": 1, "at": "yesterday"}},
        {"checkpoint": {"step": 1, "at": "2026-03-02T09:40:00"}},
        {"checkpoint": {"step": 1, "at": 5}},
        {"seq": 9},
        {"nonce": "x" * 40},
    ],
)
def test_a_wrong_field_is_left_out_and_the_others_count(files: JobFiles, wrong: dict[str, Any]) -> None:
    assert written(files, {"target_step": 5, "step": 3, **wrong}) == {
        name: value for name, value in {"target_step": 5, "step": 3}.items() if name not in wrong
    }


def test_the_counts_of_a_queue_that_are_right_count(files: JobFiles) -> None:
    assert written(files, {"queue": {"done": 7, "failed": -1, "running": 2**60, "other": 5}}) == {"queue": {"done": 7}}


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 4000, '{"step": 1' + " " * 5000 + "}"])
def test_what_is_no_report_says_nothing(files: JobFiles, text: str) -> None:
    assert written(files, text) == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.dictionaries(st.sampled_from(sorted(WHOLE)), ANYTHING))
def test_whatever_is_written_the_service_takes_the_check_in(files: JobFiles, values: dict[str, Any]) -> None:
    written(files, values)


def test_only_a_regular_file_is_read(files: JobFiles, tmp_path: Path) -> None:
    secret, place = tmp_path / "secret.json", files.folder / "job/report.json"
    secret.write_text('{"step": 7}')
    place.symlink_to(secret)
    assert job_report(files.folder) == {}
    place.unlink()
    os.mkfifo(place)
    assert job_report(files.folder) == {}
    place.unlink()
    place.mkdir()
    assert job_report(files.folder) == {}


def test_what_is_asked_stands_in_a_file(files: JobFiles, tmp_path: Path) -> None:
    files.write_asks(["save", "upload"])
    assert (files.folder / "asks").read_text() == "save\nupload\n"
    files.write_asks([])
    assert (files.folder / "asks").read_text() == ""
    JobFiles(tmp_path / "none").write_asks(["save"])


def test_a_folder_that_can_not_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    JobFiles(tmp_path / "file/opt").prepare()
    assert job_report(tmp_path / "file/opt") == {}


@pytest.mark.parametrize(
    ("code", "said", "word"),
    [
        ("0", "", "done"),
        ("3", "", "failed"),
        ("0", '{"job": "failed"}', "failed"),
        ("3", '{"job": "saving"}', "failed"),
    ],
)
def test_of_a_job_that_it_started_the_agent_knows_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str, word: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu-shopper-agent"])
    place = CommandFolder(tmp_path / "job", "job.log")
    place.start("train", [sys.executable, "-c", f"raise SystemExit({code})"], tmp_path, {})
    if said:
        (tmp_path / "job/report.json").write_text(said)
    while (state := place.read()) is None or state.exit_code is None:
        continue
    found = job_report(tmp_path)
    assert (found["job"], found["job_exit_code"]) == (word, int(code))


def test_a_running_job_says_itself_what_it_does_and_a_paused_one_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu-shopper-agent"])
    place = CommandFolder(tmp_path / "job", "job.log")
    state = place.start("train", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, {})
    files = JobFiles(tmp_path)
    assert job_report(files.folder) == {"job": "running"}
    (tmp_path / "job/report.json").write_text('{"job": "saving", "step": 5}')
    assert job_report(files.folder) == {"job": "saving", "step": 5}
    place.pause(state)
    assert job_report(files.folder)["job"] == "paused"
    place.kill(state)
