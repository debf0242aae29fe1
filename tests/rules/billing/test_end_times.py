"""When an instance ended: the earliest, the likely and the latest moment, from what the ledger stores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from bot.rules.billing.end_times import after_reply, carried_out, known_end, latest_end, likely_end
from tests.support.clock import START

SWEEP_S = 10.0
LAG = timedelta(seconds=30)


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


@dataclass
class Row:
    """What is stored about one end."""

    absent_at: list[str] = field(default_factory=list)
    trouble_at: datetime | None = None
    worked_at: datetime | None = None
    terminate_asked_at: datetime | None = None
    terminate_called_at: datetime | None = None
    terminate_acked_at: datetime | None = None
    latest_end_at: datetime | None = None


def row(called: float | None = None, acked: float | None = None, absent: tuple[float, ...] = ()) -> Row:
    return Row(
        [at(minute).isoformat() for minute in absent],
        terminate_called_at=None if called is None else at(called),
        terminate_acked_at=None if acked is None else at(acked),
    )


@pytest.mark.parametrize(
    ("called", "acked", "absent", "latest"),
    [
        (None, None, (), 10),
        # A call without a reply may have ended it at any time until the cloud no longer knew it.
        (20, None, (), 20),
        (20, None, (25, 30), 30),
        (30, 20, (), 30),
        # A reply says when; the last listing without it says no later than that.
        (20, 30, (), 30),
        (None, 30, (), 30),
        (30, 30, (), 30),
        (20, 30, (22, 26), 26),
        (20, 30, (22, 40), 30),
        (20, 30, (5,), 10),
        # What is booked is never cut.
        (5, 8, (), 10),
        (5, None, (6,), 10),
    ],
)
def test_the_latest_end_of_a_row_without_a_stored_proof(
    called: int | None, acked: int | None, absent: tuple[int, ...], latest: int
) -> None:
    assert latest_end(row(called, acked, absent), at(10)) == at(latest)


@pytest.mark.parametrize(
    ("called", "acked", "latest"),
    [(None, None, 40), (20, None, 40), (30, 20, 40), (20, 30, 30), (None, 30, 30)],
)
def test_the_latest_end_is_the_proof_and_never_the_call(called: int | None, acked: int | None, latest: int) -> None:
    closing = row(called, acked, (12, 25))
    assert latest_end(closing, at(10), at(40)) == at(latest)
    # What was stored when it was closed counts from then on.
    assert latest_end(replace(closing, latest_end_at=at(33)), at(10)) == at(33)


def test_the_earliest_end_has_the_margin_of_what_nobody_saw() -> None:
    seconds = timedelta(seconds=1)
    ended = known_end(replace(row(20, 20), terminate_asked_at=at(19)), at(20), SWEEP_S)
    assert (ended.earliest, ended.likely, ended.latest) == (at(19) - 20 * seconds, at(20), at(20))
    assert not ended.is_range
    # A row of an earlier release that knows its trouble alone has the wide margin, as one that last worked then.
    for failed in (Row(trouble_at=at(12)), Row(worked_at=at(12), trouble_at=at(15))):
        assert known_end(failed, at(20), SWEEP_S).earliest == at(12) - 100 * seconds
        assert known_end(replace(failed, terminate_asked_at=at(5)), at(20), SWEEP_S).earliest == at(5)
    assert known_end(Row(absent_at=[at(45).isoformat()]), at(20), SWEEP_S).is_range


@pytest.mark.parametrize(
    ("called", "acked", "heartbeat", "likely"),
    [
        (None, None, None, 10),
        (8, None, None, 8),
        (8, 9, None, 9),
        (15, None, None, 10),
        (None, None, 11, 12),
        # The agent reported after a call that no reply confirms, so that call ended nothing.
        (8, None, 11, 12),
        (9, 8, 11, 12),
        # One that its cloud accepted may have taken two minutes, and ended nothing that reported later.
        (8, 9, 11, 9),
        (8, 9, 13, 14),
    ],
)
def test_the_likely_end(called: int | None, acked: int | None, heartbeat: int | None, likely: int) -> None:
    seen = None if heartbeat is None else at(heartbeat)
    assert likely_end(row(called, acked), [at(10), at(12), at(14)], seen, timedelta(minutes=2)) == at(likely)


def test_a_call_was_carried_out_unless_the_cloud_has_the_instance_for_longer_than_its_lag() -> None:
    assert carried_out(at(0), at(0) + LAG, LAG)
    assert not carried_out(at(0), at(0) + LAG + timedelta(seconds=1), LAG)


def test_what_a_reply_says() -> None:
    def reply(of: Row, *, there: bool, before: float | None = None, alive: float | None = None) -> object:
        called_before = None if before is None else at(before)
        alive_at = None if alive is None else at(alive)
        return after_reply(of, called_before, at(20), at(21), LAG, was_there=there, alive_at=alive_at)

    looks = row(20, absent=(5, 20.5))
    assert reply(looks, there=True) == {"terminate_acked_at": at(21), "absent_at": [at(20.5).isoformat()]}
    assert reply(row(20), there=False, before=9) == {"terminate_acked_at": at(9), "terminate_called_at": at(20)}
    assert reply(row(20), there=False, alive=7) == {"terminate_acked_at": at(21), "trouble_at": at(7)}
    assert reply(row(20), there=False) == {"terminate_acked_at": at(21), "trouble_at": at(21)}
    known = replace(row(20), trouble_at=at(3))
    assert reply(known, there=False, alive=7) == {"terminate_acked_at": at(21), "trouble_at": at(3)}
    # A later reply counts where it shows that the call before was not carried out.
    assert reply(row(9, 10), there=False) == {}
    assert reply(row(9, 10), there=True) == {"terminate_called_at": at(20), "terminate_acked_at": at(21)}
    assert reply(row(9, 10, (11,)), there=True) == {"terminate_called_at": at(20)}
    assert reply(row(9, 19.9), there=True) == {"terminate_called_at": at(20)}
