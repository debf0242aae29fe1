"""What check-ins say of a queue, and its process, which is started again where it was ended."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from bot.agent.queue.journal import JOURNAL, EndedCommand, QueueJournal
from bot.agent.queue.order import QueueOrder
from bot.agent.queue.process import QueueProcess
from bot.wire.checkin import MOST_RESULTS, Checkin, CheckinAnswer
from bot.wire.codec import from_json
from bot.wire.queue import PlannedQueue
from tests.agent.queue.queues import SCRIPT, order, results, until

AT = "2026-03-02T12:00:00+00:00"


def ended(folder: Path, *codes: int) -> None:
    journal = QueueJournal.read(folder)
    for number, code in enumerate(codes, 1):
        journal.begin(number, 0)
        journal.end(EndedCommand(number, code, 0, AT, AT))


def test_a_machine_without_a_queue_says_nothing(tmp_path: Path) -> None:
    assert QueueProcess(tmp_path).report() == {}


def test_a_check_in_counts_and_has_what_was_not_taken(tmp_path: Path) -> None:
    order(["a", "b", "c"]).keep(tmp_path)
    queue = QueueProcess(tmp_path)
    assert queue.report() == {
        "queue": {"waiting": 3, "running": 0, "done": 0, "failed": 0},
        "results": [],
        "job": "running",
    }
    ended(tmp_path, 0, 4)
    QueueJournal.read(tmp_path).begin(3, 1)
    said = queue.report()
    assert said["queue"] == {"waiting": 0, "running": 1, "done": 1, "failed": 1}
    assert [(one["index"], one["number"], one["exit_code"]) for one in said["results"]] == [(1, 1, 0), (2, 2, 4)]
    assert queue.is_reporting
    queue.take(CheckinAnswer(results_taken=2))
    assert (queue.report()["results"], queue.is_reporting) == ([], False)


@pytest.mark.parametrize(("last", "job", "code"), [(0, "done", 0), (9, "failed", 1)])
def test_the_job_is_over_only_with_the_last_results(tmp_path: Path, last: int, job: str, code: int) -> None:
    count = MOST_RESULTS + 2
    order(["x"] * count).keep(tmp_path)
    ended(tmp_path, *[0] * (count - 1), last)
    queue = QueueProcess(tmp_path)
    first = queue.report()
    assert (len(first["results"]), first["job"]) == (MOST_RESULTS, "running")
    queue.take(CheckinAnswer(results_taken=MOST_RESULTS))
    rest = queue.report()
    assert (len(rest["results"]), rest["job"], rest["job_exit_code"]) == (2, job, code)


@pytest.mark.parametrize("wrong", [{"ended_at": ""}, {"gpu": -1}, {"exit_code": "x"}, {"log_tail": 7}])
def test_a_result_that_can_not_be_read_is_unknown_and_not_missing(tmp_path: Path, wrong: dict[str, object]) -> None:
    order(["a", "b", "c"]).keep(tmp_path)
    ended(tmp_path, 0, 0, 0)
    lines = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    lines = [line | wrong if (line["kind"], line["number"]) == ("ended", 2) else line for line in lines]
    lines.append({"kind": "ended", "number": 2**60, "exit_code": 0, "gpu": 0, "started_at": AT, "ended_at": AT})
    (tmp_path / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    checkin = from_json(Checkin, {"seq": 1, "v": 2} | QueueProcess(tmp_path).report())
    assert [(result.index, result.number) for result in checkin.results] == [(1, 1), (2, 2), (3, 3)]
    assert (checkin.results[0].exit_code, checkin.results[2].log_tail) == (0, "")


def test_what_earlier_machines_did_counts(tmp_path: Path) -> None:
    QueueOrder("start-2-run", PlannedQueue(((3, "c"),), 1, done=1, failed=1), SCRIPT, {}).keep(tmp_path)
    journal = QueueJournal.read(tmp_path)
    journal.begin(3, 0)
    journal.end(EndedCommand(3, 0, 0, AT, AT))
    said = QueueProcess(tmp_path).report()
    assert said["queue"] == {"waiting": 0, "running": 0, "done": 2, "failed": 1}
    assert (said["job"], said["job_exit_code"]) == ("failed", 1)


def test_its_process_is_started_again_until_the_queue_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu-shopper-agent"])
    monkeypatch.setenv("GPU_SHOPPER_AGENT_FOLDER", str(tmp_path / "agent"))
    monkeypatch.setenv("GPU_SHOPPER_CHECKIN_TOKEN", "gpun_canary")
    (tmp_path / "agent").mkdir()
    folder = tmp_path / "queue"
    hold = "env >seen; n=0; until [ -e go ] || [ $((n+=1)) -gt 3000 ]; do sleep 0.02; done"
    order([hold, "true"], gpus=1).keep(folder)
    queue = QueueProcess(folder)
    queue.keep_running()
    until((tmp_path / "seen").exists)
    assert queue._process is not None
    os.kill(queue._process.pid, signal.SIGKILL)
    until(lambda: queue._process is not None and queue._process.poll() is not None)
    queue.keep_running()
    another = QueueProcess(folder)
    another.keep_running()
    both = (queue._process, another._process)
    until(lambda: 1 in [one.poll() for one in both if one is not None])  # One of both holds the lock.
    (tmp_path / "go").touch()
    until(lambda: results(folder) == {1: 0, 2: 0})
    assert "canary" not in (tmp_path / "seen").read_text()
    until(lambda: sorted(one.wait(20) for one in both if one is not None) == [0, 1])
    queue.keep_running()
    assert queue._process is both[0]  # Nothing is left to do.
