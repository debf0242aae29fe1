"""What each answer of TensorDock means, errors inside a 200 among them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.clouds.tensordock.errors import CREATE_OUTCOMES, call_error, create_error, made_id, meaning, not_there
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

ZOD = [{"code": "too_small", "message": "Number must be at least 100", "path": ["data", "storage_gb"]}]


def reply(status: int, body: Any = None, **headers: str) -> HttpReply:
    return HttpReply(status, headers, "" if body is None else json.dumps(body), body)


def inside(text: str, status: int = 400) -> HttpReply:
    return reply(200, {"status": status, "error": text})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (inside("No available nodes found"), NoCapacity),
        (inside("Hostnode unavailable"), NoCapacity),
        (inside("No available public IPs"), NoCapacity),
        (reply(409, {"error": "Out of stock"}), NoCapacity),
        (reply(400, {"message": "Insufficient capacity"}), NoCapacity),
        (reply(200, {"error": "Not enough capacity"}), NoCapacity),
        (inside("Your balance must be at least $1"), InsufficientFunds),
        (reply(402), InsufficientFunds),
        (reply(400, {"error": "Instance limit reached"}), QuotaExceeded),
        (inside("RAM per GPU exceeds ratio limit"), InvalidSpec),
        (inside("SSH port (22) must be forwarded for Ubuntu VMs"), InvalidSpec),
        (reply(400, ZOD), InvalidSpec),
        (reply(200, ZOD), InvalidSpec),
        (reply(422), InvalidSpec),
        (reply(401), AuthFailed),
        (inside("Unauthorized", 401), AuthFailed),
        (reply(403, {"error": "Forbidden"}), AuthFailed),
        (reply(429), RateLimited),
        # Everything that is not in the table is unknown.
        (inside("Virtual machine deployment failed"), OutcomeUnknown),
        (inside("resource_error"), OutcomeUnknown),
        (inside("Something new"), OutcomeUnknown),
        (inside("No available nodes found", 500), OutcomeUnknown),
        (reply(500, {"error": "No available nodes found"}), OutcomeUnknown),
        (reply(503), OutcomeUnknown),
        (reply(308), OutcomeUnknown),
        (reply(400), OutcomeUnknown),
        (reply(404, {"error": "Not found"}), OutcomeUnknown),
        (reply(200), OutcomeUnknown),
        (reply(200, {"data": {"type": "virtualmachine"}}), OutcomeUnknown),
        (reply(200, {"message": "accepted"}), OutcomeUnknown),
        (reply(200, ["odd"]), OutcomeUnknown),
        (reply(200, {"status": 400, "error": "Out of stock", "data": {"id": "ab"}}), OutcomeUnknown),
        (reply(400, {"error": "Out of stock", "id": "ab"}), OutcomeUnknown),
    ],
)
def test_an_answer_to_a_create(answer: HttpReply, expected: type[ProviderError]) -> None:
    error = create_error(answer)

    assert type(error) is expected
    assert error.definite_no is (expected is not OutcomeUnknown)


def test_every_row_of_the_table_is_a_definite_no() -> None:
    assert all(row.raises.definite_no for row in CREATE_OUTCOMES)
    assert all(status < 500 for row in CREATE_OUTCOMES for status in row.statuses)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(200, {"data": []}), None),
        (reply(200, []), None),
        (reply(200, {"id": "ab", "status": "running"}), None),
        (reply(204), None),
        (inside("No available nodes found"), NoCapacity),
        (inside("Internal server error", 500), Unavailable),
        (inside("Machine is stopped"), UnexpectedResponse),
        (inside("gone", 404), UnexpectedResponse),
        (reply(200, {"error": "who knows"}), UnexpectedResponse),
        (reply(401), AuthFailed),
        (reply(403), AuthFailed),
        (reply(429), RateLimited),
        (reply(408), Unavailable),
        (reply(502), Unavailable),
        (reply(301), UnexpectedResponse),
        (reply(400, ZOD), UnexpectedResponse),
    ],
)
def test_an_answer_to_any_other_call(answer: HttpReply, expected: type[ProviderError] | None) -> None:
    error = call_error(answer)

    assert (None if error is None else type(error)) is expected


@pytest.mark.parametrize(("given", "wait_s"), [("7", 7.0), ("soon", None), ("-1", None), ("inf", None), ("", None)])
def test_how_long_to_wait(given: str, wait_s: float | None) -> None:
    error = create_error(HttpReply(429, {"retry-after": given}, "<html>", None))

    assert isinstance(error, RateLimited)
    assert error.retry_after_s == wait_s


def test_the_status_is_the_one_that_counts() -> None:
    assert meaning(reply(200, {"status": True, "data": {}})) == (200, "")
    assert meaning(reply(200, {"status": 200, "data": {}})) == (200, "")
    assert meaning(reply(404, {"status": 200, "error": {"code": "Gone", "why": 7}})) == (404, "gone 7")
    assert not_there(reply(404))
    assert not_there(inside("Instance not found", 404))
    assert not not_there(reply(200, {"status": "running", "id": "ab"}))


def test_an_id_is_found_wrapped_or_not() -> None:
    assert made_id(reply(200, {"data": {"id": "ab"}})) == "ab"
    assert made_id(reply(201, {"id": "ab"})) == "ab"
    nameless: tuple[Any, ...] = (None, [], {"data": []}, {"data": {"id": 7}}, {"id": ""})
    assert all(made_id(reply(200, body)) is None for body in nameless)


def test_no_text_of_the_cloud_is_passed_on() -> None:
    for answer in (
        inside("token swordfish is invalid"),
        reply(500, {"error": "swordfish"}),
        reply(401, {"error": "swordfish"}),
    ):
        assert "swordfish" not in create_error(answer).message
        assert "swordfish" not in str(call_error(answer))
