"""The checkpoint from which lost work continues: the newest complete one, and how much work is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.checkpoints.resume import LostWork, address, checkpoints_in, last_verified
from bot.rules.checkpoints.verification import Newest, StoreLocation

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def file(path: str, size: int, minutes_ago: int) -> Newest:
    return Newest(path, size, NOW - timedelta(minutes=minutes_ago))


def whole(step: int, minutes_ago: int, size: int = 100) -> list[Newest]:
    """A checkpoint of two files."""
    return [file(f"run/step-{step}/{name}.pt", size, minutes_ago) for name in ("model", "optimizer")]


def test_files_of_one_step_are_one_checkpoint_and_the_newest_comes_first() -> None:
    first, second = checkpoints_in(
        [
            *whole(100, 30),
            *whole(200, 10),
        ]
    )
    assert (first.path, first.step, first.files, first.size, first.smallest) == ("run/step-200", 200, 2, 200, 100)
    assert second.step == 100
    (alone,) = checkpoints_in([file("run/latest.pt", 5, 1)])
    assert (alone.path, alone.step) == ("run/latest.pt", None)


def test_the_newest_complete_one_is_chosen() -> None:
    found = last_verified([*whole(100, 30), *whole(200, 10)], NOW)
    assert found is not None
    assert (found.checkpoint.step, found.damaged) == (200, ())


@pytest.mark.parametrize(
    ("newest", "why"),
    [
        (whole(200, 1)[:1], "run/step-200 has 1 file of 2"),
        (whole(200, 1, size=40), "run/step-200 has 80 bytes of about 200"),
        ([*whole(200, 1)[:1], file("run/step-200/optimizer.pt", 0, 1)], "run/step-200 has an empty file"),
        ([file("run/step-200.pt", 0, 1)], "run/step-200.pt is empty"),
        (whole(200, -60), "run/step-200 is dated in the future"),
    ],
)
def test_a_damaged_one_is_passed_over(newest: list[Newest], why: str) -> None:
    found = last_verified([*whole(100, 30), *newest], NOW)
    assert found is not None
    assert (found.checkpoint.step, found.damaged) == (100, (why,))


def test_an_older_save_that_was_uploaded_again_under_a_new_step_is_passed_over() -> None:
    older, newer = whole(100, 30), whole(200, 1)
    same = {"model.pt": "aa", "optimizer.pt": "bb"}
    copies = [replace(one, digest=same[one.path.rpartition("/")[2]]) for one in (*older, *newer)]
    found = last_verified(copies, NOW)
    assert found is not None
    assert (found.checkpoint.step, found.damaged) == (100, ("run/step-200 has the bytes of run/step-100",))
    # One other file is another save, and a hash that is missing proves nothing.
    for other in (replace(copies[-1], digest="cc"), replace(copies[-1], digest="")):
        found = last_verified([*copies[:-1], other], NOW)
        assert found is not None
        assert (found.checkpoint.step, found.damaged) == (200, ())


def test_two_damaged_ones_are_passed_over_and_compared_with_the_last_good_one() -> None:
    empty = [file("run/step-300/model.pt", 0, 1), file("run/step-300/optimizer.pt", 0, 1)]
    found = last_verified([*whole(100, 30), *whole(200, 10, size=10), *empty], NOW)
    assert found is not None
    assert (found.checkpoint.step, len(found.damaged)) == (100, 2)


def test_without_a_complete_one_there_is_none() -> None:
    assert last_verified([], NOW) is None
    assert last_verified([file("run/step-1.pt", 0, 1)], NOW) is None


def test_files_without_a_step_are_not_compared() -> None:
    found = last_verified([file("run/a.pt", 100, 9), file("run/b.pt", 1, 1)], NOW)
    assert found is not None
    assert found.checkpoint.path == "run/b.pt"


def test_lost_work_is_counted_and_said() -> None:
    lost = LostWork.between(NOW - timedelta(minutes=7), NOW, Decimal("3.00"))
    assert (lost.seconds, lost.usd) == (420, Decimal("0.35"))
    assert lost.words == "7 minutes of work (about $0.35)"
    assert LostWork.between(NOW, NOW - timedelta(minutes=1), Decimal(3)).seconds == 0
    assert LostWork.between(NOW - timedelta(seconds=9), NOW, Decimal(0)).words == "9 seconds of work (about $0.00)"


def test_an_address_is_what_a_job_can_read() -> None:
    assert address(StoreLocation("s3", "bucket", "run"), "run/step-1") == "s3://bucket/run/step-1"
    assert address(StoreLocation("https", "https://a.test/x.pt?sig=1", ""), "x.pt") == "https://a.test/x.pt?sig=1"
