"""Slots go to one address after the other; a call of a share waits for nobody of another share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import pytest

from bot.http_shares import BURST, QUOTAS, TOKENS_REMEMBERED, KnownTokens, RequestHead, ServerShare, ShareQuota, Slots


@dataclass(eq=False)
class Timer:
    """A callback at a time of a stepped loop."""

    at_s: float
    run: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Never run it."""
        self.is_cancelled = True


class SteppedLoop:
    """The clock and the timers of an event loop, whose time passes when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> Timer:
        self.timers.append(Timer(self.now_s + delay_s, partial(callback, *arguments)))
        return self.timers[-1]

    def advance(self, seconds: float) -> None:
        """Let time pass, and run each timer that is due and not cancelled."""
        until_s = self.now_s + seconds
        while due := [timer for timer in self.timers if timer.at_s <= until_s]:
            timer = min(due, key=lambda one: one.at_s)
            self.timers.remove(timer)
            self.now_s = max(self.now_s, timer.at_s)
            if not timer.is_cancelled:
                timer.run()
        self.now_s = until_s


class Calls:
    """Slots whose calls note that they started."""

    def __init__(self, **quotas: ShareQuota) -> None:
        named = {ServerShare[name.upper()]: quota for name, quota in quotas.items()}
        self.loop = SteppedLoop()
        self.slots = Slots(cast("asyncio.AbstractEventLoop", self.loop), {**QUOTAS, **named})
        self.started: list[str] = []

    def enter(self, share: ServerShare, name: str, address: str = "10.0.0.1") -> object:
        return self.slots.enter(share, address, lambda: self.started.append(name))


async def test_strangers_wait_for_each_other_and_slack_for_nobody() -> None:
    calls = Calls(strangers=ShareQuota(1))
    first = calls.slots.enter(ServerShare.STRANGERS, "10.0.0.1", lambda: None)
    calls.enter(ServerShare.STRANGERS, "stranger")
    calls.enter(ServerShare.SLACK, "slack")
    assert calls.started == ["slack"]
    assert calls.slots.is_awaited(ServerShare.STRANGERS)
    calls.slots.leave(first)
    calls.slots.leave(first)  # A second time frees nothing.
    calls.enter(ServerShare.STRANGERS, "later")
    assert calls.started == ["slack", "stranger"]


async def test_an_address_with_many_calls_delays_another_by_one_of_them() -> None:
    calls = Calls(health=ShareQuota(1))
    current = calls.slots.enter(ServerShare.HEALTH, "10.0.0.1", lambda: None)
    waiting = [calls.slots.enter(ServerShare.HEALTH, "10.0.0.1", lambda: None) for _ in range(100)]
    calls.enter(ServerShare.HEALTH, "load balancer", "10.0.0.2")
    calls.slots.leave(current)
    assert calls.started == []
    calls.slots.leave(waiting[0])
    assert calls.started == ["load balancer"]


async def test_who_left_the_queue_gets_no_slot() -> None:
    calls = Calls(strangers=ShareQuota(1))
    current = calls.slots.enter(ServerShare.STRANGERS, "a", lambda: None)
    gone = calls.slots.enter(ServerShare.STRANGERS, "b", lambda: calls.started.append("gone"))
    calls.enter(ServerShare.STRANGERS, "there", "c")
    calls.slots.leave(gone)
    calls.slots.leave(current)
    assert calls.started == ["there"]


async def test_a_rate_spreads_the_starts_of_a_share() -> None:
    calls = Calls(strangers=ShareQuota(100, 100.0))
    for number in range(3 * BURST):
        calls.enter(ServerShare.STRANGERS, str(number))
    assert len(calls.started) == BURST
    calls.loop.advance(BURST / 100 - 0.001)
    assert len(calls.started) == 2 * BURST - 1
    calls.loop.advance(1)
    assert calls.started == [str(number) for number in range(3 * BURST)]


async def test_nothing_starts_after_the_end() -> None:
    calls = Calls(strangers=ShareQuota(100, 1000.0))
    for number in range(2 * BURST):
        calls.enter(ServerShare.STRANGERS, str(number))
    calls.slots.close()
    calls.loop.advance(1)
    assert len(calls.started) == BURST


HEAD = b"POST /slack/events?x=1 HTTP/1.1\r\nHost: here\r\nContent-Length: 12\r\nX-Name:  a value "


def test_a_head_is_read_as_far_as_needed() -> None:
    head = RequestHead.read(HEAD)
    assert head is not None
    assert (head.method, head.path, head.headers[b"x-name"], head.body_bytes) == (
        b"POST",
        b"/slack/events",
        b"a value",
        12,
    )
    assert replace(head, headers={}).body_bytes == 0


@pytest.mark.parametrize(
    "headers",
    [
        {b"transfer-encoding": b"chunked"},
        {b"content-length": b"-1"},
        {b"content-length": b"9" * 10},
        {b"content-length": b"5", b"expect": b"100-continue"},
    ],
)
def test_a_length_that_is_not_plain_counts_as_unknown(headers: dict[bytes, bytes]) -> None:
    assert RequestHead(b"POST", b"/", headers).body_bytes is None


@pytest.mark.parametrize("raw", [b"", b"GET", b"GET / HTTP/1.1 x", HEAD + b"\r\nno colon", HEAD + b"\r\nhost: twice"])
def test_a_head_that_is_not_plain_is_left_to_the_library(raw: bytes) -> None:
    assert RequestHead.read(raw) is None


def test_tokens_are_remembered_up_to_a_number() -> None:
    tokens = KnownTokens()
    tokens.add(b"first")
    for number in range(TOKENS_REMEMBERED - 1):
        tokens.add(str(number).encode())
    assert b"first" in tokens
    tokens.add(b"one more")
    assert b"first" in tokens
    assert b"0" not in tokens
