"""What each answer of Vast.ai means, from bodies that were documented or observed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from providers.clouds.vast.errors import CREATE_OUTCOMES, call_error, create_error, not_there, refused, start_queued
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

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
GONE_400 = "error 404/3603: no_such_ask  Instance type by id 7 is not available."
GONE_410 = "error 410/3907: no_such_ask  Instance type 7 is no longer available."


def reply(status: int, body: Any = None, *, text: str = "", headers: dict[str, str] | None = None) -> HttpReply:
    return HttpReply(status, headers or {}, text or ("" if body is None else json.dumps(body)), body)


def error(code: str, msg: str = "", **more: Any) -> dict[str, Any]:
    return {"success": False, "error": code, "msg": msg, **more}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(400, error("invalid_args", GONE_400, ask_id=7)), NoCapacity),
        (reply(404, error("no_such_ask", GONE_400)), NoCapacity),
        (reply(400, error("no_such_ask")), NoCapacity),
        (reply(410, error("no_such_ask", GONE_410)), NoCapacity),
        (reply(200, error("no_such_ask", GONE_410)), NoCapacity),
        (reply(400, error("invalid_args", "error 404/3603: gone")), NoCapacity),
        (reply(400, error("invalid_args", "error 400/3467: Invalid args: disk")), InvalidSpec),
        (reply(400, error("invalid_price")), InvalidSpec),
        (reply(400, error("no_ssh_key_for_vm")), InvalidSpec),
        (reply(400, error("invalid_request", "Invalid json body")), InvalidSpec),
        (reply(403, error("invalid_args", "error 403/3586: Offer 7 is not your own")), InvalidSpec),
        (
            reply(400, error("insufficient_credit", "Your account lacks credit")),
            InsufficientFunds,
        ),
        (reply(200, error("insufficient_credit")), InsufficientFunds),
        (reply(400, error("spend_rate_limit")), QuotaExceeded),
        (reply(403, error("auth_error", "This action requires login.")), AuthFailed),
        (reply(404, error("auth_error", "Invalid user key")), AuthFailed),
        (reply(404, {"error": "x", "msg": "Invalid user key"}), AuthFailed),
        (reply(401, None, text="no"), AuthFailed),
        (reply(404, error("auth_error", "Session expired. Please log in again.")), AuthFailed),
        (reply(429, text="API requests too frequent"), RateLimited),
        (reply(429, text="API requests too frequent: endpoint threshold=4.5"), RateLimited),
        (reply(429, {"detail": "API requests too frequent endpoint threshold=4.5"}), RateLimited),
        (reply(429, error("rate_limit_exceeded", "API requests too frequent")), RateLimited),
        (reply(429, text="<html>slow down</html>"), OutcomeUnknown),
        (reply(200, error("bid_too_low", "too low", new_contract=77)), OutcomeUnknown),
        (reply(400, error("no_such_ask", GONE_400, new_contract=77)), OutcomeUnknown),
        (reply(200, {"success": True}), OutcomeUnknown),
        (reply(200, {"success": True, "new_contract": 0}), OutcomeUnknown),
        (reply(200, {"success": True, "new_contract": "x", "error": "no_such_ask"}), OutcomeUnknown),
        (reply(200, error("something_new")), OutcomeUnknown),
        (reply(200, text="OK"), OutcomeUnknown),
        (reply(200, [1, 2]), OutcomeUnknown),
        (reply(308, text=""), OutcomeUnknown),
        (reply(400, text="<html>bad gateway in disguise</html>"), OutcomeUnknown),
        (reply(403, error("forbidden")), OutcomeUnknown),
        (reply(404, None, text="not found"), OutcomeUnknown),
        (reply(408, None), OutcomeUnknown),
        (reply(409, error("conflict")), OutcomeUnknown),
        (reply(500, error("server_error", "Something went wrong on the server")), OutcomeUnknown),
        (reply(500, error("no_such_ask", GONE_400)), OutcomeUnknown),
        (reply(502, text="<html/>"), OutcomeUnknown),
        (reply(503, text="<html/>"), OutcomeUnknown),
    ],
)
def test_a_create_is_read_by_the_table(answer: HttpReply, expected: type[ProviderError]) -> None:
    found = create_error(answer, NOW)

    assert type(found) is expected
    assert found.definite_no is (expected is not OutcomeUnknown)
    assert found.cloud == "vast"


def test_no_row_of_the_table_is_dead_or_doubtful() -> None:
    for row in CREATE_OUTCOMES:
        assert row.raises.definite_no
        assert not any(status >= 500 or status == 408 for status in row.statuses)
        body = error(row.code or "invalid_args", "".join(row.texts))
        assert type(create_error(reply(min(row.statuses), body), NOW)) is row.raises


def test_the_instance_that_was_made_all_the_same_is_named() -> None:
    assert "26500123" in create_error(reply(200, error("x", new_contract=26500123)), NOW).message


@pytest.mark.parametrize("secret", ["<!channel> *pwn*", "sk-live-123", "Bad\nLine", "x" * 60, 7, None])
def test_the_clouds_text_is_never_repeated(secret: Any) -> None:
    body = {"success": False, "error": secret, "msg": f"key hunter2 {secret}"}
    for found in (create_error(reply(500, body), NOW), call_error(reply(500, body), NOW)):
        assert found is not None
        assert str(secret) not in found.message
        assert "hunter2" not in found.message


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"retry-after": "7"}, {"detail": "API requests too frequent"}, 7.0),
        ({"retry-after": "0.5"}, {"detail": "API requests too frequent"}, 0.5),
        ({}, error("rate_limit_exceeded", retry_after=12), 12.0),
        ({}, error("rate_limit_exceeded"), None),
        ({"retry-after": "soon"}, error("rate_limit_exceeded"), None),
        ({"retry-after": "-4"}, error("rate_limit_exceeded"), None),
        ({"retry-after": "inf"}, error("rate_limit_exceeded"), None),
        ({"x-ratelimit-reset": str(NOW.timestamp() + 60)}, error("search_quota_exceeded"), 60.0),
        ({"x-ratelimit-reset": str(NOW.timestamp() - 60)}, error("search_quota_exceeded"), 0.0),
        ({}, error("search_quota_exceeded"), None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], body: dict[str, Any], expected: float | None) -> None:
    found = refused(reply(429, body, headers=headers), NOW)

    assert isinstance(found, RateLimited)
    assert found.retry_after_s == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(200, {"success": True}), None),
        (reply(200, {"offers": []}), None),
        (reply(200, error("x")), UnexpectedResponse),
        (reply(400, error("invalid_request")), UnexpectedResponse),
        (reply(404, error("no_such_instance")), UnexpectedResponse),
        (reply(410, error("deprecated_endpoint")), UnexpectedResponse),
        (reply(308, None), UnexpectedResponse),
        (reply(408, None), Unavailable),
        (reply(500, None), Unavailable),
        (reply(503, None), Unavailable),
        (reply(429, text="<html/>"), RateLimited),
        (reply(401, None), AuthFailed),
        (reply(404, error("auth_error", "Invalid user key")), AuthFailed),
    ],
)
def test_any_other_call(answer: HttpReply, expected: type[ProviderError] | None) -> None:
    found = call_error(answer, NOW)

    assert found is None if expected is None else type(found) is expected


def test_only_a_404_that_says_so_means_that_it_is_not_there() -> None:
    assert not_there(reply(404, error("no_such_instance", "Instance 7 not found.")))
    assert not_there(reply(404, error("not_found")))
    assert not not_there(reply(404, None, text="not found"))
    assert not not_there(reply(404, error("auth_error", "Invalid user key")))
    assert not not_there(reply(400, error("no_such_instance")))


def test_a_queued_start_is_recognised_by_code_or_text() -> None:
    text = "Required resources are currently unavailable, state change queued."
    assert start_queued(reply(200, error("resources_unavailable", text)))
    assert start_queued(reply(200, error("other", text)))
    assert not start_queued(reply(200, {"success": True}))
    assert not start_queued(reply(200, error("other", "no")))
    assert not start_queued(reply(400, error("resources_unavailable", text)))
