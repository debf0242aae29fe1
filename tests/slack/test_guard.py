"""Nothing unsigned or malformed gets through, and none of it is a 500."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slack_sdk.signature import SignatureVerifier

from bot.slack.guard import BODY_MAX, HELD_MAX, SMALL, Guard
from tests.slack import signing
from tests.support.clock import SteppedClock
from tests.support.matrix import examples


class Echo:
    """Answers 200 with the body, and remembers what reached it."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.seen.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"through"})


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def guard(echo: Echo, clock: SteppedClock) -> Guard:
    return Guard(echo, signing.SECRET, clock)


GOOD = signing.command_body("help")
ACTION = {"type": "button", "action_id": "approve:1"}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (GOOD, signing.FORM),
        (signing.payload_body({"type": "block_actions", "actions": [ACTION]}), signing.FORM),
        (json.dumps({"type": "url_verification", "challenge": "c"}).encode(), "application/json"),
        (json.dumps({"type": "event_callback", "event": {"type": "x"}}).encode(), "application/json; charset=utf-8"),
        (signing.command_body("für €"), signing.FORM),
    ],
)
async def test_signed_and_well_formed_passes_with_the_same_bytes(
    guard: Guard, echo: Echo, clock: SteppedClock, body: bytes, content_type: str
) -> None:
    answer = await signing.post(guard, body, signing.headers(body, clock, content_type=content_type))
    assert answer.status_code == 200
    assert echo.seen == [body]


@pytest.mark.parametrize("age_s", [300, -300])
async def test_five_minutes_are_inside_the_window(guard: Guard, clock: SteppedClock, age_s: int) -> None:
    assert (await signing.post(guard, GOOD, signing.headers(GOOD, clock, age_s=age_s))).status_code == 200


@pytest.mark.parametrize("age_s", [301, -301, 86_400])
async def test_outside_the_window_is_refused(guard: Guard, echo: Echo, clock: SteppedClock, age_s: int) -> None:
    assert (await signing.post(guard, GOOD, signing.headers(GOOD, clock, age_s=age_s))).status_code == 401
    assert echo.seen == []


def test_our_signature_is_the_one_of_slacks_own_library(clock: SteppedClock) -> None:
    stamp = str(int(clock.now().timestamp()))
    made = SignatureVerifier(signing.SECRET).generate_signature(timestamp=stamp, body=GOOD)
    assert made == signing.signature(GOOD, stamp)


TIMESTAMPS = ["", "abc", "12.5", "-1700000000", "9" * 400, "٣٤٥", "1e9", " 1700000000", "0x65"]


@pytest.mark.parametrize("stamp", TIMESTAMPS)
async def test_a_timestamp_that_is_no_number_is_refused(guard: Guard, echo: Echo, stamp: str) -> None:
    sent = {
        b"content-type": signing.FORM.encode(),
        b"x-slack-request-timestamp": stamp.encode(),
        b"x-slack-signature": signing.signature(GOOD, stamp).encode(),
    }
    assert (await signing.post(guard, GOOD, sent)).status_code == 401
    assert echo.seen == []


@pytest.mark.parametrize(
    "bad", [b"", b"v0=", b"v1=" + b"0" * 64, b"v0=" + b"0" * 64, b"v0=" + "é".encode() * 32, b"v0=" + b"G" * 64]
)
async def test_a_wrong_signature_is_refused(guard: Guard, echo: Echo, clock: SteppedClock, bad: bytes) -> None:
    sent = {name.encode(): value.encode() for name, value in signing.headers(GOOD, clock).items()}
    assert (await signing.post(guard, GOOD, {**sent, b"x-slack-signature": bad})).status_code == 401
    assert echo.seen == []


@pytest.mark.parametrize("missing", ["x-slack-request-timestamp", "x-slack-signature"])
async def test_a_missing_header_is_refused(guard: Guard, clock: SteppedClock, missing: str) -> None:
    sent = signing.headers(GOOD, clock)
    del sent[missing]
    assert (await signing.post(guard, GOOD, sent)).status_code == 401


async def test_a_header_that_occurs_twice_is_refused(guard: Guard, clock: SteppedClock) -> None:
    sent = list(signing.headers(GOOD, clock).items())
    assert (await signing.post(guard, GOOD, [*sent, ("x-slack-signature", "v0=" + "0" * 64)])).status_code == 401


async def test_another_secret_or_another_body_is_refused(guard: Guard, clock: SteppedClock) -> None:
    sent = signing.headers(GOOD, clock)
    assert (await signing.post(guard, GOOD + b"&user_id=U0BOB", sent)).status_code == 401
    stamp = sent["x-slack-request-timestamp"]
    forged = {**sent, "x-slack-signature": signing.signature(GOOD, stamp, "another-secret")}
    assert (await signing.post(guard, GOOD, forged)).status_code == 401


MALFORMED = [
    (b"payload=x", signing.FORM),
    (b"payload=[1]", signing.FORM),
    (b"payload=" + b"[" * 100_000, signing.FORM),
    (b"payload=" + b"1" * 5_000, signing.FORM),
    (b"", signing.FORM),
    (b"\xff\xfe\x00", signing.FORM),
    (b"text=\xff", signing.FORM),
    (b"&".join(b"a%d=1" % n for n in range(200)), signing.FORM),
    (b"{", "application/json"),
    (b"{", signing.FORM),
    (b"[]", "application/json"),
    (b"{}", "application/json"),
    (b'"text"', "application/json"),
    (b"nonsense", "application/json"),
    *(
        (signing.payload_body(odd), signing.FORM)
        for odd in (
            {"type": 5},
            {"a": 1},
            {"type": "block_actions"},
            {"type": "block_actions", "actions": []},
            {"type": "block_actions", "actions": [5]},
            {"type": "block_actions", "actions": [{"type": "button"}]},
            {"type": "view_submission", "view": {}},
            {"type": "view_submission", "view": [1]},
            {"type": "event_callback", "event": {"type": 1}},
            {"type": "event_callback", "event": {"type": "x"}, "authorizations": 5},
            {"type": "shortcut", "user": 5},
        )
    ),
]


@pytest.mark.parametrize(("body", "content_type"), MALFORMED)
async def test_signed_but_malformed_is_refused(
    guard: Guard, echo: Echo, clock: SteppedClock, body: bytes, content_type: str
) -> None:
    sent = signing.headers(body, clock, content_type=content_type)
    assert (await signing.post(guard, body, sent)).status_code == 401
    assert echo.seen == []


async def test_a_large_body_is_refused_before_it_is_read(guard: Guard, clock: SteppedClock) -> None:
    body = b"text=" + b"a" * BODY_MAX
    assert (await signing.post(guard, body, signing.headers(body, clock))).status_code == 413
    for declared in (str(BODY_MAX + 1), "9" * 40):
        sent = {**signing.headers(GOOD, clock), "content-length": declared}
        assert (await signing.post(guard, GOOD, sent)).status_code == 413


class Arriving:
    """A body of which nothing more comes, and whether anybody waited for it."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)
        self.read = False
        self.answered: list[Any] = []
        self.waits = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def receive(self) -> Any:
        self.read = True
        if not self._chunks:
            self.waits.set()
            await self.goes_on.wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._chunks.pop(0), "more_body": True}

    async def send(self, message: Any) -> None:
        self.answered.append(message.get("status"))

    async def into(self, guard: Guard, sent: Any) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in dict(sent).items()]
        scope = {"type": "http", "method": "POST", "path": "/slack/events", "headers": headers}
        await guard(scope, self.receive, self.send)


async def test_a_body_is_not_read_when_its_headers_are_no_signed_ones(guard: Guard, clock: SteppedClock) -> None:
    old, right = signing.headers(GOOD, clock, age_s=301), signing.headers(GOOD, clock)
    for sent in ({}, old, {**right, "x-slack-signature": "v0=short"}, {**right, "content-length": str(BODY_MAX + 1)}):
        body = Arriving(b"a")
        await body.into(guard, sent)
        assert (body.read, body.answered[0] in (401, 413)) == (False, True)


async def test_large_bodies_that_arrive_at_once_are_bounded_and_small_ones_pass(
    guard: Guard, echo: Echo, clock: SteppedClock
) -> None:
    sent = signing.headers(GOOD, clock)
    slow = [Arriving(b"a" * BODY_MAX) for _ in range(HELD_MAX // BODY_MAX)]
    reading = [asyncio.create_task(one.into(guard, sent)) for one in slow]
    await asyncio.gather(*(one.waits.wait() for one in slow))
    large = b"text=" + b"a" * SMALL
    assert (await signing.post(guard, large, signing.headers(large, clock))).status_code == 503
    assert (await signing.post(guard, GOOD, sent)).status_code == 200
    for one in slow:
        one.goes_on.set()
    await asyncio.gather(*reading)
    assert (await signing.post(guard, large, signing.headers(large, clock))).status_code == 200
    assert echo.seen == [GOOD, large]


async def test_refusals_are_logged_once_a_minute(
    guard: Guard, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bot.slack.guard")
    for _ in range(100):
        await signing.post(guard, GOOD, {})
    clock.advance(61)
    await signing.post(guard, GOOD, {})
    assert [one.rpartition(" (")[2] for one in caplog.messages if "refused" in one] == [
        "0 more in the last minute)",
        "99 more in the last minute)",
    ]


async def test_a_large_body_without_a_length_is_refused(guard: Guard, clock: SteppedClock) -> None:
    async def endless() -> Any:
        for _ in range(40):
            yield b"a" * 65_536

    transport = httpx.ASGITransport(app=guard)
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
        answer = await client.post("/", content=endless(), headers=signing.headers(GOOD, clock))
    assert answer.status_code == 413


async def test_the_largest_body_passes(guard: Guard, echo: Echo, clock: SteppedClock) -> None:
    body = b"text=" + b"a" * (BODY_MAX - 5)
    assert (await signing.post(guard, body, signing.headers(body, clock))).status_code == 200


async def test_other_verbs_are_refused(guard: Guard) -> None:
    transport = httpx.ASGITransport(app=guard)
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
        assert (await client.get("/slack/events")).status_code == 401


async def test_a_refusal_does_not_say_what_was_wrong(guard: Guard, clock: SteppedClock) -> None:
    old = await signing.post(guard, GOOD, signing.headers(GOOD, clock, age_s=999))
    forged = await signing.post(guard, GOOD, {**signing.headers(GOOD, clock), "x-slack-signature": "v0=" + "0" * 64})
    assert old.text == forged.text


async def test_a_caller_who_goes_away_is_no_error(guard: Guard, echo: Echo, clock: SteppedClock) -> None:
    sent: list[Any] = []

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await guard({"type": "http", "method": "POST", "headers": []}, gone, send)
    assert sent[0]["status"] == 401
    assert echo.seen == []


async def test_lifespan_passes(guard: Guard) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await guard({"type": "lifespan"}, None, send)  # type: ignore[arg-type] # The echo never receives here.
    assert sent


async def test_after_the_body_the_application_hears_the_server(clock: SteppedClock) -> None:
    heard: list[Any] = []
    pairs = [(name.encode(), value.encode()) for name, value in signing.headers(GOOD, clock).items()]
    coming = [
        {"type": "http.request", "body": GOOD[:9], "more_body": True},
        {"type": "http.request", "body": GOOD[9:], "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return coming.pop(0)

    async def send(_message: Any) -> None:
        raise AssertionError("the guard itself answers nothing here")

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        heard.extend([await receive(), await receive()])

    await Guard(app, signing.SECRET, clock)({"type": "http", "method": "POST", "headers": pairs}, receive, send)
    assert heard == [{"type": "http.request", "body": GOOD, "more_body": False}, {"type": "http.disconnect"}]


def test_an_empty_secret_is_refused(echo: Echo, clock: SteppedClock) -> None:
    with pytest.raises(ValueError, match="signing secret is empty"):
        Guard(echo, "", clock)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=200), stamp=st.binary(max_size=20), signed=st.binary(max_size=80))
async def test_no_bytes_at_all_are_a_500(clock: SteppedClock, body: bytes, stamp: bytes, signed: bytes) -> None:
    echo = Echo()
    sent: list[Any] = []
    pairs = [(b"x-slack-request-timestamp", stamp), (b"X-Slack-Signature", signed)]

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await Guard(echo, signing.SECRET, clock)({"type": "http", "method": "POST", "headers": pairs}, receive, send)
    assert sent[0]["status"] == 401
    assert echo.seen == []
