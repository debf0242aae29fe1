"""The checkpoint gate as rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.checkpoints import Newest, Place, Reported, choice, hold_ends, judge, place
from bot.rules.policy import Policy

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
WHOLE = Newest("run/step-1200/model.pt", 10, NOW)


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("hf://org/repo/run/a/", Place("hf", "org/repo", "run/a")),
        ("HF://org/repo", Place("hf", "org/repo", "")),
        ("s3://bucket/run", Place("s3", "bucket", "run")),
        ("https://files.example.com/a.pt", None),
        ("hf://org", None),
        ("/workspace/out", None),
        ("none", None),
        (None, None),
    ],
)
def test_where_to_look(location: str | None, found: Place | None) -> None:
    assert place(location) == found


def test_the_newest_checkpoint_must_be_there_whole_recent_and_as_far_as_was_reported() -> None:
    reported = Reported(NOW, 1200, NOW)
    assert judge(WHOLE, reported, 3600, NOW).code == "verified"
    assert judge(None, reported, 3600, NOW).code == "missing"
    assert judge(replace(WHOLE, size=0), reported, 3600, NOW).code == "empty"
    assert judge(replace(WHOLE, at=NOW - 2 * HOUR), reported, 3600, NOW).code == "old"
    assert judge(replace(WHOLE, at=NOW - 2 * HOUR), Reported(NOW - 2 * HOUR), 3600, NOW).code == "verified"
    assert judge(replace(WHOLE, at=NOW - 2 * HOUR), Reported(), 3600, NOW).code == "old"
    assert judge(WHOLE, replace(reported, step=1201), 3600, NOW).code == "behind"
    nameless = Newest("model.pt", 10, NOW - HOUR)
    assert nameless.step is None
    assert judge(nameless, Reported(NOW, 1200, NOW), 3600, NOW).code == "behind"
    assert judge(nameless, Reported(NOW, 1200, NOW - HOUR), 3600, NOW).code == "verified"


def test_the_choice_is_said_where_something_can_be_looked_at() -> None:
    assert choice(Policy(), "/workspace") == ""
    assert "stopped with its disk" in choice(Policy(), "s3://b/x")
    assert "as the policy allows" in choice(Policy(checkpoint_unverified="destroy"), "s3://b/x")


def test_a_hold_lasts_as_long_as_what_was_approved_pays_for_it() -> None:
    day = timedelta(days=1)
    assert hold_ends(NOW, Decimal(1), Decimal("0.5"), day) == NOW + 2 * HOUR
    assert hold_ends(NOW, Decimal(-1), Decimal("0.5"), day) == NOW
    assert hold_ends(NOW, Decimal(1000), Decimal("0.5"), day) == NOW + day
    assert hold_ends(NOW, Decimal(0), Decimal(0), day) == NOW + day
