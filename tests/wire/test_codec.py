"""The codec: which values a field takes, and what is left out where somebody reads leniently."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from bot.wire.checkin import Checkin, CheckinAnswer, QueueCounts, Work
from bot.wire.codec import from_json, right_fields, to_json


@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("seq", 0, "at least 1"),
        ("seq", True, "must be int"),
        ("seq", "7", "must be int"),
        ("utilisation", [101], "at most 100"),
        ("utilisation", [float("nan")], "must be a number"),
        ("utilisation", ["much"], ""),
        ("utilisation", 7, "must be list"),
        ("utilisation", [1] * 65, "longer than 64"),
        ("job", "resting", "resting"),
        ("job", ["done"], ""),
        ("v", 3, ""),
        ("idle_since", "2026-03-02", "must be a time"),
        ("idle_since", "2026-03-02T09:40:00", "time zone"),
        ("idle_since", "2026-03-02T09:40:00+00:00:01", "whole minutes"),
        ("tokens_per_s", 1e12, "12 digits before"),
        ("tokens_per_s", "0.0000001", "6 decimal places"),
        ("tokens_per_s", "Infinity", ""),
        ("nonce", "n" * 43 + "\n", "wrong form"),
        ("nonce", "short", "wrong form"),
        ("checkpoint", 7, "must be an object"),
        ("wants_startup", 1, "must be bool"),
    ],
)
def test_a_wrong_field_is_named_and_leniently_left_out(name: str, wrong: object, why: str) -> None:
    said = {"seq": 1, "step": 5, name: wrong}
    with pytest.raises(ValueError, match=f"^{name} .*{why}"):
        from_json(Checkin, said)
    assert right_fields(Checkin, said) == {key: value for key, value in {"seq": 1, "step": 5}.items() if key != name}


@pytest.mark.parametrize("wrong", [None, 7, "x", []])
def test_what_is_no_object_is_refused_leniently_too(wrong: object) -> None:
    with pytest.raises(ValueError, match="must be an object"):
        from_json(CheckinAnswer, wrong, is_lenient=True)


def test_a_field_that_must_be_there_is_missed_leniently_too() -> None:
    for said in ({}, {"seq": 0}):
        with pytest.raises(ValueError, match="seq is missing"):
            from_json(Checkin, said, is_lenient=True)


def test_a_default_is_not_written_so_an_older_reader_takes_the_rest() -> None:
    assert to_json(Checkin(seq=7)) == {"seq": 7}
    assert to_json(CheckinAnswer()).keys() == {"seq", "ends_at", "deadline", "asks", "next_in_s"}


def test_objects_inside_are_read_leniently_as_well() -> None:
    assert right_fields(Checkin, {"queue": {"done": 7, "failed": -1}}) == {"queue": QueueCounts(done=7)}


def test_numbers_keep_their_digits() -> None:
    read = from_json(Checkin, json.loads('{"seq": 1, "tokens_per_s": 4200.1, "utilisation": ["93.5", 7]}'))
    assert (read.tokens_per_s, read.utilisation) == (Decimal("4200.1"), (Decimal("93.5"), Decimal(7)))


def test_words_are_written_as_words() -> None:
    assert (f"{Work.DONE}", str(Work.DONE), json.dumps(Work.DONE)) == ("done", "done", '"done"')


@dataclass(frozen=True)
class Odd:
    """Kinds of values that no body has yet."""

    pair: tuple[int, str]
    anything: Any
    at: datetime


def test_other_kinds_are_read() -> None:
    said = {"pair": [1, "x"], "anything": {"a": [1]}, "at": "2026-03-02T09:40:00Z"}
    assert to_json(from_json(Odd, said)) == said
    with pytest.raises(ValueError, match="pair"):
        from_json(Odd, {**said, "pair": [1]})
