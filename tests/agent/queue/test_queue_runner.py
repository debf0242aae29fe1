"""The queue as real processes: one command on each GPU, and one result each, whatever is ended meanwhile."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from bot.agent.credentials import Credentials
from bot.agent.job_files import JobFiles
from bot.agent.queue.journal import QueueJournal
from bot.agent.queue.order import read_order
from bot.agent.queue.runner import MOST_STARTS
from bot.agent.retry_policy import RetryPolicy
from tests.agent.queue.queues import order, place, results, runner, until


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "argv", ["gpu-shopper-agent"])
    return tmp_path / "queue"


def starts(folder: Path) -> int:
    """How often the command began that writes a line each time."""
    file = folder.parent / "one"
    return file.read_text().count("start") if file.exists() else 0


def _has_started(folder: Path, times: int) -> bool:
    return starts(folder) == times


def test_every_command_runs_once_on_a_gpu_of_its_own(folder: Path) -> None:
    says = "echo $QUEUE_NUMBER on $CUDA_VISIBLE_DEVICES $WORD >>seen; [ $QUEUE_NUMBER != 3 ] || exit 5"
    one = runner(folder, order([says] * 5))
    one.run()
    assert results(folder) == {1: 0, 2: 0, 3: 5, 4: 0, 5: 0}
    seen = sorted((folder.parent / "seen").read_text().splitlines())
    assert [line.split()[0] for line in seen] == ["1", "2", "3", "4", "5"]
    assert {line.split(" ", 2)[2].split()[0] for line in seen} == {"0", "1"}
    assert all(line.endswith("here") for line in seen)
    log = (folder.parent / "job" / "job.log").read_text()
    assert log.count("--- command 3 of 5 on GPU") == 1
    assert "exit code 5" in log


def test_two_commands_never_share_a_gpu(folder: Path) -> None:
    alone = "mkdir gpu-$CUDA_VISIBLE_DEVICES || exit 9; sleep 0.05; rmdir gpu-$CUDA_VISIBLE_DEVICES"
    runner(folder, order([alone] * 8, gpus=3)).run()
    assert set(results(folder).values()) == {0}


def test_a_queue_goes_on_after_its_process_was_ended(folder: Path) -> None:
    """The commands outlive it, and their ends are found by the next one."""
    wanted = order(["echo start >>one; sleep 0.3", "echo start >>two; exit 4", "echo start >>three"], gpus=1)
    first = runner(folder, wanted)
    first.look()
    until((folder.parent / "one").exists)
    for _ in range(3):  # Each one is ended at another moment.
        runner(folder, wanted).look()
    runner(folder, wanted).run()
    assert results(folder) == {1: 0, 2: 4, 3: 0}
    assert [(folder.parent / name).read_text() for name in ("one", "two", "three")] == ["start\n"] * 3


def test_the_exit_code_is_known_though_the_commands_runner_was_killed(folder: Path) -> None:
    one = runner(folder, order(["until [ -e go ]; do sleep 0.02; done; exit 6"]))
    one.look()
    until(lambda: place(folder, 1).read() is not None)
    state = place(folder, 1).read()
    assert state is not None
    os.kill(state.runner_pid, signal.SIGKILL)
    (folder.parent / "go").touch()
    one.run()
    assert results(folder) == {1: 6}


def test_a_command_whose_start_was_cut_off_is_started_once(folder: Path) -> None:
    wanted = order(["echo start >>one"])
    journal = QueueJournal.read(folder)
    journal.begin(1, 0)
    runner(folder, wanted).run()
    assert results(folder) == {1: 0}
    assert (folder.parent / "one").read_text() == "start\n"


def test_what_was_lost_with_the_machines_power_runs_again_but_not_for_ever(folder: Path) -> None:
    wanted = order(["echo start >>one; sleep 60"])
    for _ in range(MOST_STARTS):
        one = runner(folder, wanted)
        one.look()
        begun = len(one.journal.begun[1])
        until(partial(_has_started, folder, begun))
        state = place(folder, 1).read()
        assert state is not None
        os.kill(state.runner_pid, signal.SIGKILL)
        os.killpg(state.pid, signal.SIGKILL)
        until(lambda: (now := place(folder, 1).read()) is not None and not now.is_running)
    runner(folder, wanted).run()
    assert results(folder) == {1: None}
    assert starts(folder) == MOST_STARTS


def test_a_failed_command_runs_again_on_its_gpu(folder: Path) -> None:
    third = 'echo start >>starts; [ "$(grep -c start starts)" -ge 3 ] || exit 75'
    runner(folder, order([third], retry=RetryPolicy(5, (75,)))).run()
    (found,) = QueueJournal.read(folder).results.values()
    assert (found.exit_code, found.attempts) == (0, 3)


@pytest.mark.parametrize("word", ["stop", "pause"])
def test_nothing_begins_on_a_machine_that_ends(folder: Path, word: str) -> None:
    one = runner(folder, order(["echo start >>one"]))
    files = JobFiles(folder.parent)
    files.write_asks([word])
    one.look()
    assert one.journal.begun == {}
    files.write_asks([])
    one.run()
    assert results(folder) == {1: 0}


def test_commands_wait_for_their_secrets(folder: Path, tmp_path: Path) -> None:
    one = runner(folder, order(["echo start >>one"], secrets=("HF_TOKEN",)))
    one.credentials = Credentials(tmp_path / "own" / "credentials.sh", "boot")
    one.look()
    assert one.journal.begun == {}
    assert one.credentials.take({"HF_TOKEN": "value"})
    one.run()
    assert results(folder) == {1: 0}


def test_an_order_is_kept_once(folder: Path) -> None:
    first, second = order(["echo a"]), order(["echo b"])
    first.keep(folder)
    second.keep(folder)
    assert read_order(folder) == first
    (folder / "order.json").write_text("[]")
    assert read_order(folder) is None
