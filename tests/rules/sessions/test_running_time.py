"""How long a session ran: its stops and its waits for a replacement do not count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from bot.rules.sessions.running_time import seconds_run
from tests.support.clock import START

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Row:
    ready_at: datetime | None = None
    stopped_at: datetime | None = None
    ran_s: int | None = None


@pytest.mark.parametrize(
    ("row", "seconds"),
    [
        (Row(), None),
        (Row(ready_at=START), 600),
        (Row(ready_at=START, stopped_at=START + 4 * MINUTE, ran_s=240), 240),
        (Row(ready_at=START + 8 * MINUTE, ran_s=240), 360),
        (Row(ran_s=240), 240),
        (Row(ready_at=START + 11 * MINUTE), 0),
    ],
)
def test_the_runs_add_up(row: Row, seconds: int | None) -> None:
    assert seconds_run(row, START + 10 * MINUTE) == seconds
