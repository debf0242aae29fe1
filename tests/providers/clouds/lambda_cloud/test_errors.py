"""What each answer of Lambda means: by status and code, never by text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.clouds.lambda_cloud.errors import (
    CREATE_OUTCOMES,
    LAUNCH,
    call_error,
    create_error,
    duplicate,
    error_code,
    not_there,
)
from providers.errors import (
    AuthFailed,
    InsufficientFunds,
    InvalidSpec,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Unavailable,
    UnexpectedResponse,
)
from providers.http import HttpReply


def reply(status: int, code: str | None = None, body: Any = None, **headers: str) -> HttpReply:
    if code is not None:
        body = {"error": {"code": code, "message": "whatever it says: insufficient-capacity", "suggestion": "none"}}
    return HttpReply(status, headers, "" if body is None else json.dumps(body), body)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(400, f"{LAUNCH}insufficient-capacity"), NoCapacity),
        (reply(400, f"{LAUNCH}file-system-in-wrong-region"), InvalidSpec),
        (reply(400, "global/quota-exceeded"), QuotaExceeded),
        (reply(403, "global/account-inactive"), InsufficientFunds),
        (reply(403, "global/invalid-address"), InsufficientFunds),
        (reply(403, "global/forbidden"), AuthFailed),
        (reply(401, "global/invalid-api-key"), AuthFailed),
        (reply(401), AuthFailed),
        (reply(400, "global/invalid-parameters"), InvalidSpec),
        (reply(400, "global/object-does-not-exist"), InvalidSpec),
        (reply(404, "global/object-does-not-exist"), InvalidSpec),
        (reply(404, "global/not-found"), InvalidSpec),
        (reply(429), RateLimited),
        (reply(429, "global/whatever"), RateLimited),
        # Everything that is not in the table is unknown.
        (reply(500, "global/internal-error"), OutcomeUnknown),
        (reply(502), OutcomeUnknown),
        (reply(400, "provider/internal-unavailable"), OutcomeUnknown),
        (reply(503, "provider/internal-unavailable"), OutcomeUnknown),
        (reply(500, f"{LAUNCH}insufficient-capacity"), OutcomeUnknown),
        (reply(409, "global/conflict"), OutcomeUnknown),
        (reply(404), OutcomeUnknown),
        (reply(403), OutcomeUnknown),
        (reply(400), OutcomeUnknown),
        (reply(400, "global/duplicate"), OutcomeUnknown),
        (reply(400, body=["insufficient-capacity"]), OutcomeUnknown),
        (reply(308), OutcomeUnknown),
        (reply(200, body={"data": {}}), OutcomeUnknown),
        (reply(200, body={"data": {"instance_ids": ["a", "b"]}}), OutcomeUnknown),
        (reply(200, "global/quota-exceeded"), OutcomeUnknown),
    ],
)
def test_an_answer_to_a_launch(answer: HttpReply, expected: type[ProviderError]) -> None:
    error = create_error(answer)

    assert type(error) is expected
    assert error.definite_no is (expected is not OutcomeUnknown)
    assert "whatever it says" not in error.message


def test_every_row_of_the_table_is_a_definite_no() -> None:
    assert all(row.raises.definite_no for row in CREATE_OUTCOMES)
    assert all(status < 500 for row in CREATE_OUTCOMES for status in row.statuses)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(200, body={"data": []}), None),
        (reply(401), AuthFailed),
        (reply(403), AuthFailed),
        (reply(403, "global/account-inactive"), AuthFailed),
        (reply(400, "global/invalid-parameters"), InvalidSpec),
        (reply(409, "global/conflict"), Unavailable),
        (reply(409), UnexpectedResponse),
        (reply(429), RateLimited),
        (reply(400, "provider/internal-unavailable"), Unavailable),
        (reply(500, "global/internal-error"), Unavailable),
        (reply(408), Unavailable),
        (reply(404), UnexpectedResponse),
        (reply(301), UnexpectedResponse),
        (reply(200, "global/internal-error"), UnexpectedResponse),
    ],
)
def test_an_answer_to_any_other_call(answer: HttpReply, expected: type[ProviderError] | None) -> None:
    error = call_error(answer)

    assert (None if error is None else type(error)) is expected


@pytest.mark.parametrize(("given", "wait_s"), [("7", 7.0), ("0.5", 0.5), ("soon", None), ("-1", None), ("inf", None)])
def test_how_long_to_wait(given: str, wait_s: float | None) -> None:
    error = create_error(HttpReply(429, {"retry-after": given}, "<html>", None))

    assert isinstance(error, RateLimited)
    assert error.retry_after_s == wait_s


def test_only_its_own_code_means_that_an_object_is_not_there() -> None:
    assert not_there(reply(404, "global/object-does-not-exist"))
    assert not_there(reply(400, "global/object-does-not-exist"))
    assert not not_there(reply(404))
    assert not not_there(reply(404, "global/not-found"))
    assert not not_there(reply(500, "global/object-does-not-exist"))
    assert duplicate(reply(400, "global/duplicate"))
    assert not duplicate(reply(200, "global/duplicate"))


@pytest.mark.parametrize("code", ["<script>", "A" * 500, "global/x secret_key", 7, None, ["a"]])
def test_a_strange_code_is_never_repeated(code: Any) -> None:
    answer = reply(500, body={"error": {"code": code}})

    assert error_code(answer) == ""
    assert create_error(answer).message == "Lambda answered the launch with 500, which does not tell the outcome"
    assert error_code(reply(500, body={"error": "text"})) == ""
