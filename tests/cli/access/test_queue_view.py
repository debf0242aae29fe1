"""The commands of a queue in a terminal: results, times and costs, and what nobody used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from bot.api.schemas.queue import QueueCommandOut, QueueResultsOut
from bot.cli.terminal.queue_view import queue_list

BEGIN = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def ended(number: int, code: int | None, attempts: int = 1) -> QueueCommandOut:
    return QueueCommandOut(
        number=number,
        command=f"python {number}.py",
        exit_code=code,
        gpu=1,
        attempts=attempts,
        started_at=BEGIN,
        ended_at=BEGIN + timedelta(seconds=72),
        cost_usd=Decimal("0.125"),
    )


def test_each_command_is_a_row() -> None:
    open_one = QueueCommandOut(number=4, command="python 4.py")
    items = [ended(1, 0), ended(2, 75, attempts=3), ended(3, None), open_one]
    shown = queue_list(QueueResultsOut(items=items, total_usd=Decimal(1), idle_usd=Decimal("0.625")))
    assert shown.rows == (
        ("1", "exit code 0", "1", "1 min 12 s", "$0.13", "python 1.py"),
        ("2", "exit code 75, 3 attempts", "1", "1 min 12 s", "$0.13", "python 2.py"),
        ("3", "unknown", "1", "1 min 12 s", "$0.13", "python 3.py"),
        ("4", "-", "-", "-", "-", "python 4.py"),
    )
    assert shown.sentences == ("The session has cost $1.00, of which no finished command used $0.63.",)


def test_a_job_without_a_queue_says_so() -> None:
    shown = queue_list(QueueResultsOut(items=[], total_usd=Decimal(1), idle_usd=Decimal(1)))
    assert (shown.none, shown.rows, shown.sentences) == ("This job has no queue.", (), ())
