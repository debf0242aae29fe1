"""The transport: what is repeated, what never is, and what an error may say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from ledger.kernel.network_guard import NetworkInTransaction, transaction_open
from providers.errors import NotSent, OutcomeUnknown, Unavailable, UnexpectedResponse
from providers.http import CloudHttp, Credential, fingerprint
from tests.providers.scripted import DRIP, DROP, FINE, HALF, HANG, NOT_JSON, Scripted, playing, status
from tests.support.clock import SteppedClock

SECRET = "hunter2-the-key"


@asynccontextmanager
async def scripted(*script: bytes) -> AsyncIterator[tuple[Scripted, CloudHttp]]:
    async with playing(*script) as played:
        url = f"http://127.0.0.1:{played.port}"
        http = CloudHttp("cloudy", url, {"Authorization": f"Bearer {SECRET}"}, SteppedClock())
        try:
            yield played, http
        finally:
            played.release.set()
            await http.close()


async def test_a_read_gives_status_text_and_parsed_body() -> None:
    async with scripted(FINE) as (played, http):
        reply = await http.read("GET", "/x")

    assert (reply.status, reply.ok, reply.body) == (200, True, {"done": True})
    assert b"Bearer hunter2-the-key" in played.requests[0]
    assert b"gpu-shopper" in played.requests[0]


@pytest.mark.parametrize("trouble", [status(502), status(503), status(504), DROP, HALF])
async def test_a_read_is_repeated_through_passing_trouble(trouble: bytes) -> None:
    async with scripted(trouble, trouble, FINE) as (played, http):
        reply = await http.read("GET", "/x")

    assert reply.body == {"done": True}
    assert len(played.requests) == 3


async def test_a_read_gives_up_after_three_attempts() -> None:
    async with scripted(status(503)) as (played, http):
        assert (await http.read("GET", "/x")).status == 503
    assert len(played.requests) == 3

    async with scripted(DROP) as (played, http):
        with pytest.raises(Unavailable):
            await http.read("GET", "/x")
    assert len(played.requests) == 3


async def test_the_pause_grows_and_is_the_clocks() -> None:
    async with scripted(status(503)) as (_, http):
        clock = http._clock
        before = clock.monotonic()
        await http.read("GET", "/x")

    assert clock.monotonic() - before == pytest.approx(0.25 + 0.5)


@pytest.mark.parametrize("code", [400, 401, 404, 408, 429, 500, 501])
async def test_a_clear_answer_is_never_repeated(code: int) -> None:
    async with scripted(status(code)) as (played, http):
        assert (await http.read("GET", "/x")).status == code
    assert len(played.requests) == 1


@pytest.mark.parametrize("trouble", [DROP, HALF, HANG, DRIP])
async def test_a_lost_reply_to_a_create_is_doubt_and_one_request(trouble: bytes) -> None:
    async with scripted(trouble, FINE) as (played, http):
        with pytest.raises(OutcomeUnknown) as caught:
            await http.send_once("PUT", "/x", json={"a": 1}, timeout_s=0.2)

    assert len(played.requests) == 1
    assert not caught.value.definite_no
    assert SECRET not in str(caught.value) + repr(caught.value) + repr(caught.value.__cause__)


@pytest.mark.parametrize("code", [308, 429, 500, 502, 503, 504])
async def test_no_status_makes_a_create_go_twice(code: int) -> None:
    async with scripted(status(code, "Location: /elsewhere\r\n"), FINE) as (played, http):
        assert (await http.send_once("PUT", "/x", json={})).status == code
    assert len(played.requests) == 1


async def test_a_create_that_found_nobody_was_not_sent() -> None:
    async with scripted(FINE) as (played, _):
        pass
    lost = CloudHttp("cloudy", f"http://127.0.0.1:{played.port}", {"Authorization": SECRET}, SteppedClock())
    with pytest.raises(NotSent) as caught:
        await lost.send_once("PUT", "/x", json={})
    await lost.close()

    assert caught.value.definite_no
    assert played.requests == []


async def test_creates_have_a_connection_of_their_own() -> None:
    async with scripted(FINE) as (played, http):
        await http.read("GET", "/x")
        await http.read("GET", "/x")
        assert played.connections == 1
        await http.send_once("PUT", "/x", json={})
        await http.send_once("PUT", "/x", json={})
        assert played.connections == 3


async def test_a_cancelled_create_stays_cancelled_and_is_not_sent_again() -> None:
    async with scripted(HANG, FINE) as (played, http):
        task = asyncio.create_task(http.send_once("PUT", "/x", json={}))
        await played.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(played.requests) == 1


async def test_no_proxy_of_the_environment_sees_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with scripted(FINE) as (_, http):
        assert (await http.read("GET", "/x")).ok
        assert (await http.send_once("PUT", "/x")).ok


async def test_nothing_moves_inside_a_transaction() -> None:
    async with scripted(FINE) as (played, http):
        with transaction_open():
            with pytest.raises(NetworkInTransaction):
                await http.read("GET", "/x")
            with pytest.raises(NetworkInTransaction):
                await http.send_once("PUT", "/x")
        assert (await http.read("GET", "/x")).ok
    assert len(played.requests) == 1


async def test_what_is_not_json_proves_nothing() -> None:
    async with scripted(NOT_JSON) as (_, http):
        reply = await http.read("GET", "/x")
        with pytest.raises(UnexpectedResponse, match="200"):
            http.json(reply)

    assert (reply.text, reply.body) == ("hello", None)


def test_a_fingerprint_tells_keys_apart_and_reveals_nothing() -> None:
    assert fingerprint("abc") == "ba7816bf8f01"
    assert fingerprint("abd") != fingerprint("abc")


class Config(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    key: Credential


@pytest.mark.parametrize("bad", ["two words", "line\nbreak", "caf\xe9-key", "tab\tkey", "\x7fkey"])
def test_a_key_that_cannot_be_a_header_is_refused_without_being_shown(bad: str) -> None:
    with pytest.raises(ValidationError, match="printable ASCII") as caught:
        Config.model_validate({"key": bad})

    assert bad not in str(caught.value)


def test_an_ordinary_key_is_taken() -> None:
    assert Config.model_validate({"key": "rpa_AZaz09-._~"}).key.get_secret_value() == "rpa_AZaz09-._~"
    assert Config.model_validate({"key": ""}).key.get_secret_value() == ""
