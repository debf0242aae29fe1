"""Results of a queue as an agent reports them: how many are stored, and when a command can have run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.rules.nodes.checkins import NodeStatus, shows_progress
from bot.rules.nodes.reported_commands import taken_after, times_by
from bot.wire.checkin import QueueCounts, ReportedResult

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def result(index: int) -> ReportedResult:
    return ReportedResult(
        index=index, number=index, gpu=0, exit_code=0, attempts=1, started_at=NOW - timedelta(seconds=9), ended_at=NOW
    )


def test_the_count_goes_on_without_gaps() -> None:
    assert taken_after(0, []) == 0
    assert taken_after(0, [result(1), result(2)]) == 2
    assert taken_after(2, [result(1), result(2), result(3)]) == 3  # An agent that was started again begins at 1.
    assert taken_after(2, [result(4)]) == 2


def test_times_are_cut_to_what_can_be_true() -> None:
    assert times_by(result(1), NOW) == (NOW - timedelta(seconds=9), NOW)
    early = NOW - timedelta(seconds=20)
    assert times_by(result(1), early) == (early, early)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (None, None, False),
        (None, QueueCounts(waiting=12), False),
        (QueueCounts(waiting=12), QueueCounts(waiting=11, done=1), True),
        (QueueCounts(waiting=100), QueueCounts(waiting=96, done=4), False),
        (QueueCounts(waiting=96, done=4), QueueCounts(waiting=95, done=5), True),
        (QueueCounts(waiting=96, done=4), QueueCounts(waiting=95, done=4, failed=1), True),
    ],
)
def test_cards_show_a_queue_twenty_times_at_most(
    before: QueueCounts | None, after: QueueCounts | None, shown: bool
) -> None:
    assert shows_progress(NodeStatus(queue=before), NodeStatus(queue=after)) is shown


def test_cards_show_an_attempt() -> None:
    assert shows_progress(NodeStatus(), NodeStatus(job_attempt=2))
