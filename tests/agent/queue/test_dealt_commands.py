"""A queue that several machines share: commands come with the answers, each runs once here, and more may come."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bot.agent.queue.order import DEALT, QueueOrder, keep_dealt, read_dealt, read_order
from bot.agent.queue.process import QueueProcess
from bot.wire.checkin import CheckinAnswer
from bot.wire.codec import from_json
from bot.wire.queue import PlannedQueue
from tests.agent.queue.queues import SCRIPT, results, runner, until


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> QueueOrder:
    monkeypatch.setattr(sys, "argv", ["gpu-shopper-agent"])
    return QueueOrder("start-1-run", PlannedQueue((), 2, dealt_of=12), SCRIPT, {})


def test_dealt_commands_run_once_each_and_the_queue_waits_for_more(tmp_path: Path, shared: QueueOrder) -> None:
    folder = tmp_path / "queue"
    one, queue = runner(folder, shared), QueueProcess(folder)
    one.look()
    assert (one.is_over, results(folder), queue.report()["job"]) == (False, {}, "running")
    queue.take(CheckinAnswer(commands=((7, "echo 7 >>seen"), (4, "echo 4 >>seen; exit 3"))))

    def looked() -> bool:
        one.look()
        return results(folder).keys() >= {4, 7}

    until(looked)
    assert results(folder) == {7: 0, 4: 3}
    queue.take(CheckinAnswer(commands=((4, "echo 4 >>seen; exit 3"), (9, "echo 9 >>seen")), results_taken=1))
    until(lambda: looked() and 9 in results(folder))
    assert sorted((tmp_path / "seen").read_text().split()) == ["4", "7", "9"]
    said = queue.report()
    assert (said["job"], said["queue"]["done"], said["queue"]["failed"]) == ("running", 2, 1)
    assert [result["index"] for result in said["results"]] == [2, 3]
    assert "of 12 on GPU" in (tmp_path / "job/job.log").read_text()


@pytest.mark.parametrize("wrong", ["x", [1], [["a", "b"]], {"a": 1}])
def test_a_wrong_answer_deals_nothing(tmp_path: Path, shared: QueueOrder, wrong: object) -> None:
    shared.keep(tmp_path)
    QueueProcess(tmp_path).take(from_json(CheckinAnswer, {"commands": wrong}, is_lenient=True))
    assert read_dealt(tmp_path) == {}
    keep_dealt(tmp_path, [(2, "b")])
    keep_dealt(tmp_path, [(1, "a"), (2, "another")])
    assert read_dealt(tmp_path) == {1: "a", 2: "b"}
    order = read_order(tmp_path)
    assert order is not None
    assert (dict(order.queue.commands), order.queue.dealt_of) == ({1: "a", 2: "b"}, 12)
    (tmp_path / DEALT).write_text("torn")
    assert read_dealt(tmp_path) == {}
