"""What an answer of RunPod means: the error tables, the 429 headers, and that no secret passes through."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.adapter_helpers import clean
from providers.clouds.runpod.errors import (
    CREATE_OUTCOMES,
    call_error,
    create_error,
    graphql_error,
    retry_after_s,
)
from providers.errors import RateLimited
from providers.http import HttpReply

NO_CAPACITY = (
    "There are no longer any instances available with the requested specifications. Please refresh and try again."
)


def problem(
    status: int, detail: str | None = "", errors: list[str] | None = None, headers: dict[str, str] | None = None
) -> HttpReply:
    """A problem document, or with `detail` None a page of HTML."""
    if detail is None:
        return HttpReply(status, headers or {}, "<html>no</html>", None)
    body = {"title": "T", "status": status, "detail": detail, **({"errors": errors} if errors else {})}
    return HttpReply(status, headers or {}, json.dumps(body), body)


@pytest.mark.parametrize(
    ("status", "detail", "error"),
    [
        (400, NO_CAPACITY, "NoCapacity"),
        (400, NO_CAPACITY.upper(), "NoCapacity"),
        (400, "This machine does not have the resources to deploy your pod.", "NoCapacity"),
        (400, "This would exceed your spend limit.", "QuotaExceeded"),
        (400, "image is required unless templateId is set", "InvalidSpec"),
        (400, None, "OutcomeUnknown"),
        (401, "missing bearer token", "AuthFailed"),
        (402, "Your account balance is too low to rent a pod.", "InsufficientFunds"),
        (402, "Your spend limit is reached.", "QuotaExceeded"),
        (403, "access denied", "AuthFailed"),
        (403, "gpu pool not allowed", "NoCapacity"),
        (403, None, "AuthFailed"),
        (404, "resource not found", "InvalidSpec"),
        (409, "conflict", "OutcomeUnknown"),
        (410, "gone", "Unsupported"),
        (422, "Request validation failed.", "InvalidSpec"),
        (429, "rate limit exceeded for the minute window", "RateLimited"),
        (500, "boom", "OutcomeUnknown"),
        (503, None, "OutcomeUnknown"),
    ],
)
def test_create_outcomes(status: int, detail: str | None, error: str) -> None:
    raised = create_error(problem(status, detail))
    assert type(raised).__name__ == error
    assert raised.definite_no is (error != "OutcomeUnknown")


@given(status=st.integers(300, 599), detail=st.text(max_size=80))
def test_a_status_without_a_row_is_an_unknown_outcome(status: int, detail: str) -> None:
    known = {status for row in CREATE_OUTCOMES for status in row.statuses}
    raised = create_error(problem(status, detail))
    assert raised.cloud == "runpod"
    if status not in known:
        assert not raised.definite_no


@pytest.mark.parametrize(
    ("status", "detail", "error"),
    [
        (400, "There are not enough free GPUs on the host machine to start this pod.", "NoCapacity"),
        (400, "lastN excludes startTime", "InvalidSpec"),
        (401, "missing bearer token", "AuthFailed"),
        (403, "spend limit reached", "QuotaExceeded"),
        (403, "access denied", "AuthFailed"),
        (409, "pod belongs to a cluster", "InvalidSpec"),
        (410, "gone", "Unsupported"),
        (418, "teapot", "UnexpectedResponse"),
        (429, "slow down", "RateLimited"),
        (500, "boom", "Unavailable"),
        (302, "", "UnexpectedResponse"),
    ],
)
def test_other_calls(status: int, detail: str, error: str) -> None:
    assert type(call_error(problem(status, detail))).__name__ == error


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "12"}, 12),
        ({"retry-after": "12", "ratelimit": '"minute";r=0;t=40'}, 12),
        ({"ratelimit": '"minute";r=0;t=12, "hour";r=2800;t=1812, "day";r=49500;t=45012'}, 12),
        ({"ratelimit": '"minute";r=0;t=12, "hour";r=0;t=1812'}, 1812),
        ({"ratelimit": '"minute";r=3;t=12'}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "nan", "ratelimit": "nonsense;;=,"}, None),
        ({}, None),
    ],
)
def test_when_to_come_back_after_a_429(headers: dict[str, str], seconds: float | None) -> None:
    reply = problem(429, "rate limit exceeded", headers=headers)
    assert retry_after_s(reply) == seconds
    raised = create_error(reply)
    assert isinstance(raised, RateLimited)
    assert raised.retry_after_s == seconds


def test_the_text_of_a_422_is_kept_and_the_environment_is_not() -> None:
    reply = problem(
        422, "Request validation failed.", ["$.env.TOKEN: got hunter2-secret", "$: missing property 'name'"]
    )
    message = create_error(reply, ["hunter2-secret", "rpa_key"]).message
    assert "missing property 'name'" in message
    assert "hunter2" not in message
    assert "[hidden]" in message


def test_a_longer_secret_is_hidden_before_a_shorter_one_inside_it() -> None:
    assert clean("abcdefgh", ["abcdef", "abcdefgh"]) == "[hidden]"


def test_short_values_and_control_characters() -> None:
    assert clean("1 of 1\n\x1b[31m", ["1"]) == "1 of 1  [31m"
    assert len(clean("x" * 5000, [])) == 200


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("UNAUTHORIZED", "AuthFailed"),
        ("INTERNAL_SERVER_ERROR", "Unavailable"),
        ("RUNPOD", "UnexpectedResponse"),
        (None, "UnexpectedResponse"),
    ],
)
def test_graphql_errors_come_with_status_200(code: str | None, error: str) -> None:
    body = {"data": None, "errors": [{"message": "m", "extensions": {"code": code}}]}
    assert type(graphql_error(body)).__name__ == error


@pytest.mark.parametrize("body", [{"data": {}}, {"data": {}, "errors": []}, None, []])
def test_no_graphql_error(body: object) -> None:
    assert graphql_error(body) is None


@pytest.mark.parametrize("errors", ["text", [17], [{"message": "m"}], [{"extensions": "none"}]])
def test_a_graphql_error_of_an_odd_shape(errors: object) -> None:
    assert type(graphql_error({"errors": errors})).__name__ == "UnexpectedResponse"
