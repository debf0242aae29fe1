"""Entries of other tools: what is taken, what is refused and why, and which are the same."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.billing.external_costs import External, is_own, read, unmatched
from tests.support.clock import START

MOST = Decimal(1000)
ENTRY: dict[str, Any] = {
    "skill": "training-runner",
    "provider": "s3",
    "action": "store",
    "amount_usd": 1.25,
    "timestamp": "2026-03-01T10:00:00+02:00",
    "notes": "checkpoints",
}


def taken(**changes: Any) -> External:
    found = read(ENTRY | changes, START, MOST)
    assert isinstance(found, External)
    return found


def test_an_entry_in_the_shared_shape() -> None:
    found = taken()
    assert (found.skill, found.provider, found.action, found.notes) == ("training-runner", "s3", "store", "checkpoints")
    assert (found.amount_usd, found.at.isoformat()) == (Decimal("1.25"), "2026-03-01T08:00:00+00:00")
    assert taken(amount_usd="-3").amount_usd == Decimal(-3)
    assert taken(timestamp=datetime.fromisoformat("2026-03-01T08:00:00+00:00")).at == found.at
    assert taken(notes=None).notes == ""


def test_the_same_cost_has_the_same_key() -> None:
    assert taken().key == taken().key
    assert taken(notes="others").key != taken().key
    assert taken(id="a").key == taken(id="a", notes="corrected").key != taken(id="b").key


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"skill": ""}, "skill is missing"),
        ({"action": 5}, "action is missing"),
        ({"amount_usd": 0}, "amount_usd"),
        ({"amount_usd": "NaN"}, "amount_usd"),
        ({"amount_usd": "much"}, "amount_usd"),
        ({"amount_usd": True}, "amount_usd"),
        ({"amount_usd": 1e12}, "amount_usd"),
        ({"amount_usd": None}, "amount_usd"),
        ({"amount_usd": "1000.01"}, "above $1,000.00"),
        ({"amount_usd": "-1000000"}, "above $1,000.00"),
        ({"timestamp": "2026-03-01T10:00:00"}, "timestamp is a time with its zone"),
        ({"timestamp": "yesterday"}, "timestamp is a time with its zone"),
        ({"timestamp": "0001-01-01T00:00:00+14:00"}, "timestamp is a time with its zone"),
        ({"timestamp": "2026-03-02T09:06:00Z"}, "future"),
        ({"skill": "GPU-Shopper"}, "its own entries"),
        ({"id": "gpu-shopper/ins_1/h0"}, "its own entries"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], says: str) -> None:
    found = read(ENTRY | changes, START, MOST)
    assert isinstance(found, str)
    assert says in found


@pytest.mark.parametrize(("amount", "fine"), [("-3", True), ("-3.01", False), ("900", True)])
def test_a_refund_gives_back_what_was_booked_and_no_more(amount: str, fine: bool) -> None:
    assert (unmatched(taken(amount_usd=amount), Decimal(3)) == "") is fine


def test_what_is_no_entry() -> None:
    assert "An entry is an object" in str(read(["x"], START, MOST))
    assert not is_own("x")
