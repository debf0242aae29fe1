"""Turns: how many calls a pace admits, what a pause does, and what an answer's headers ask for."""

from __future__ import annotations

import pytest

from providers.errors import RateLimited
from providers.http import CloudHttp
from providers.rate_limits import LocalPacer, Pace, Pacing, Turn, pause_of
from tests.providers.scripted import FINE, playing, status
from tests.support.clock import SteppedClock


async def slots(pacer: LocalPacer, clock: SteppedClock, pace: Pace, calls: int) -> list[float]:
    """When each of `calls` turns, all asked for now, is."""
    return [round(clock.monotonic() + (await pacer.reserve("x", pace)).wait_s, 6) for _ in range(calls)]


async def test_turns_come_one_after_the_other() -> None:
    clock = SteppedClock()
    assert await slots(LocalPacer(clock), clock, Pace(1.5), 4) == [0, 1.5, 3.0, 4.5]


async def test_a_burst_comes_at_once_and_is_earned_again() -> None:
    clock = SteppedClock()
    pacer, pace = LocalPacer(clock), Pace(2.0, burst=3)
    assert await slots(pacer, clock, pace, 5) == [0, 0, 0, 2, 4]
    clock.advance(60)
    assert await slots(pacer, clock, pace, 4) == [60, 60, 60, 62]


async def test_a_turn_that_is_too_far_away_is_not_taken() -> None:
    clock = SteppedClock()
    pacer, pace = LocalPacer(clock), Pace(8.0, wait_max_s=10.0)
    assert await slots(pacer, clock, pace, 2) == [0, 8]
    assert await pacer.reserve("x", pace) == Turn(16.0, taken=False)
    clock.advance(6)
    assert await pacer.reserve("x", pace) == Turn(10.0)


async def test_a_less_eager_group_leaves_turns_to_the_other() -> None:
    clock = SteppedClock()
    pacer = LocalPacer(clock)
    assert await slots(pacer, clock, Pace(10.0, burst=2, wait_max_s=60), 3) == [0, 0, 10]
    assert await slots(pacer, clock, Pace(10.0, burst=5, wait_max_s=60), 3) == [0, 0, 10]


async def test_a_pause_holds_every_turn_and_names_are_apart() -> None:
    clock = SteppedClock()
    pacer = LocalPacer(clock)
    await pacer.pause("x", 7.0)
    assert (await pacer.reserve("x", Pace(1.0))).wait_s == 7.0
    assert (await pacer.reserve("y", Pace(1.0))).wait_s == 0.0
    await pacer.pause("x", 2.0)
    assert (await pacer.reserve("x", Pace(1.0))).wait_s == 8.0


async def test_a_scale_of_nothing_never_waits() -> None:
    clock = SteppedClock()
    pacer = LocalPacer(clock, 0)
    await pacer.pause("x", 60.0)
    assert await slots(pacer, clock, Pace(5.0), 3) == [0, 0, 0]


@pytest.mark.parametrize(
    ("code", "headers", "pause_s"),
    [
        (200, {}, 0),
        (200, {"retry-after": "9"}, 0),
        (429, {"retry-after": "9"}, 9),
        (429, {"retry-after": "soon"}, 0),
        (429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0),
        (200, {"ratelimit": '"minute";r=0;t=12, "hour";r=2800;t=1812'}, 12),
        (200, {"ratelimit": '"minute";r=1;t=12, "hour";r=2800;t=1812'}, 0),
        (429, {"ratelimit": '"minute";r=3;t=12, "hour";r=0;t=900', "retry-after": "5"}, 900),
        (200, {"ratelimit": "garbage;r=0"}, 0),
        (200, {"ratelimit": "minute;r=0;t=11.5"}, 11.5),
        (200, {"ratelimit": '"minute";r=0'}, 0),
    ],
)
def test_what_an_answer_asks_for(code: int, headers: dict[str, str], pause_s: float) -> None:
    assert pause_of(code, headers) == pause_s


async def test_a_used_up_window_is_waited_out_before_the_next_call() -> None:
    clock = SteppedClock()
    used_up = FINE.replace(b"\r\n\r\n", b'\r\nRateLimit: "minute";r=0;t=7\r\n\r\n')
    async with playing(used_up, FINE) as played:
        pacing = Pacing("cloudy", "acc", {"any": Pace(1.0)}, LocalPacer(clock), lambda *_: ("any",))
        http = CloudHttp("cloudy", f"http://127.0.0.1:{played.port}", {}, clock, pacing=pacing)
        await http.read("GET", "/x")
        await http.read("GET", "/x")
        assert clock.monotonic() == 7
        await http.close()


async def test_every_attempt_takes_a_turn_and_a_far_one_is_refused_with_nothing_sent() -> None:
    clock = SteppedClock()
    async with playing(status(503), status(503), FINE, status(429, "Retry-After: 90\r\n")) as played:
        pacing = Pacing("cloudy", "acc", {"any": Pace(3.0)}, LocalPacer(clock), lambda *_: ("any",))
        http = CloudHttp("cloudy", f"http://127.0.0.1:{played.port}", {}, clock, pacing=pacing)
        await http.read("GET", "/x")
        assert clock.monotonic() == 6
        await http.read("GET", "/x")
        for call in (http.read("GET", "/x"), http.turn("POST", "/x")):
            with pytest.raises(RateLimited, match="others are waiting") as caught:
                await call
            assert caught.value.definite_no
            assert caught.value.retry_after_s == pytest.approx(90)
        assert len(played.requests) == 4
        await http.close()


async def test_a_call_whose_turn_was_taken_is_sent_at_once_and_its_pause_is_kept() -> None:
    clock = SteppedClock()
    async with playing(FINE, status(429, "Retry-After: 7\r\n"), FINE) as played:
        pacing = Pacing("cloudy", "acc", {"any": Pace(3.0)}, LocalPacer(clock), lambda *_: ("any",))
        http = CloudHttp("cloudy", f"http://127.0.0.1:{played.port}", {}, clock, pacing=pacing)
        await http.turn("POST", "/x")
        await http.turn("POST", "/x")
        assert clock.monotonic() == 3
        await http.send_once("POST", "/x")
        await http.send_once("POST", "/x")
        assert clock.monotonic() == 3
        await http.turn("POST", "/x")
        assert clock.monotonic() == 10
        await http.close()


def test_a_pace_reads_well() -> None:
    assert str(Pace(4.5)) == "1 in 4.5 s"
    assert str(Pace(12.0, burst=6)) == "1 in 12 s after 6 at once"
