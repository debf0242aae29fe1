"""The strict form of a wire's dataclass: what the API refuses, and the sentence that names what was wrong."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bot.api.field_sentences import own_sentence, predicate
from bot.api.schemas.agent import CheckinIn
from bot.wire.checkin import Checkin


@pytest.mark.parametrize(
    ("body", "field", "sentence"),
    [
        ({}, "seq", "is missing"),
        ({"seq": 0}, "seq", "must be at least 1"),
        ({"seq": 1, "v": 3}, "v", "must be 1 or 2"),
        ({"seq": 1, "other": 1}, "other", "is no field here"),
        ({"seq": 1, "machine": 7}, "machine", "must be an object"),
        ({"seq": 1, "machine": {"other": 1}}, "machine.other", "is no field here"),
        ({"seq": 1, "machine": {"gpus": [{"model": "x"}]}}, "machine.gpus.0.memory_mb", "is missing"),
        ({"seq": 1, "machine": {"logins": 10_001}}, "machine.logins", "must be at most 10000"),
        ({"seq": 1, "utilisation": ["1.1234567"]}, "utilisation.0", "may have at most 6 decimals"),
        (
            {"seq": 1, "idle_since": "2026-03-02T09:40:00"},
            "idle_since",
            "must be a time with its zone, such as 2026-03-01T10:00:00Z",
        ),
        ({"seq": 1, "queue": {"done": 1}}, "", 'queue is part of version 2 only, so send "v": 2.'),
        ({"seq": 1, "job": "saving"}, "", 'job has this word in version 2 only, so send "v": 2.'),
        ([], "", "must be an object"),
    ],
)
def test_a_wrong_check_in_is_refused_with_the_sentence_of_its_field(body: Any, field: str, sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(CheckinIn).validate_python(body)
    (error,) = refused.value.errors()
    assert (".".join(map(str, error["loc"])), predicate(error) or own_sentence(error)) == (field, sentence)


def test_what_was_checked_is_what_the_rules_read() -> None:
    assert isinstance(TypeAdapter(CheckinIn).validate_python({"seq": 1}), Checkin)
