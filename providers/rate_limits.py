"""How fast a cloud may be called. All callers of one account take turns, which a pacer hands out.

A turn is taken before a call and never given back. Turns are handed out by one number per group of calls, the moment
at which the group would be free if every turn were one interval long, so that a whole account is one small row.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ledger.kernel.clock import Clock
from providers.errors import RateLimited

#: No cloud's "come back later" holds up the next call for longer than this; its own refusals say the rest.
HOLD_MAX_S = 300.0
_WINDOW = re.compile(r'(?:"[^"]*"|[\w*.-]+)\s*;([^,]*)')
_FIELD = re.compile(r"\b([rt])=(\d+(?:\.\d+)?)")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """At most `burst` calls at once, and one more every `every_s` seconds.

    Who would have to wait longer than `wait_max_s` is refused instead. With `shares` the turns are those of another
    group: a lower `burst` there leaves the difference to the group itself, for calls that somebody waits for.
    """

    every_s: float
    burst: int = 1
    wait_max_s: float = 10.0
    shares: str = ""

    def __str__(self) -> str:
        """For people: `1 in 4.5 s`, `1 in 12 s after 6 at once`."""
        at_once = f" after {self.burst} at once" if self.burst > 1 else ""
        return f"1 in {self.every_s:g} s{at_once}"


@dataclass(frozen=True, slots=True)
class Turn:
    """When a call may be sent: `wait_s` seconds from now. Not `taken`: that would be longer than the caller waits."""

    wait_s: float
    taken: bool = True


class Pacer(Protocol):
    """Hands out turns. One name is one group of calls of one account at one cloud, wherever its callers run."""

    @property
    def scale(self) -> float:
        """The factor for every documented interval; an adapter that spaces its own calls applies it too."""

    async def reserve(self, name: str, pace: Pace) -> Turn:
        """Take the next turn of `name`; nothing is taken when it is further away than `pace.wait_max_s`."""

    async def pause(self, name: str, pause_s: float) -> None:
        """The cloud asked for a pause: no turn of `name` comes before `pause_s` seconds from now."""


class LocalPacer:
    """The turns of one process, for programs without a ledger. `scale` multiplies every interval; 0 never waits."""

    def __init__(self, clock: Clock, scale: float = 1.0) -> None:
        self._clock = clock
        self.scale = scale
        #: name → `clock.monotonic` at which the group would be free.
        self._free_at_s: dict[str, float] = {}

    async def reserve(self, name: str, pace: Pace) -> Turn:
        now_s, every_s = self._clock.monotonic(), pace.every_s * self.scale
        free_at_s = max(self._free_at_s.get(name, now_s), now_s)
        wait_s = max(free_at_s - every_s * (pace.burst - 1) - now_s, 0.0)
        if wait_s > pace.wait_max_s:
            return Turn(wait_s, taken=False)
        self._free_at_s[name] = free_at_s + every_s
        return Turn(wait_s)

    async def pause(self, name: str, pause_s: float) -> None:
        until_s = self._clock.monotonic() + pause_s * min(self.scale, 1.0)
        self._free_at_s[name] = max(self._free_at_s.get(name, until_s), until_s)


@dataclass(frozen=True, slots=True)
class Pacing:
    """The paces of one account at one cloud. `groups(method, path)` says which limits a call counts
    against, the tightest first."""

    cloud: str
    account: str
    limits: Mapping[str, Pace]
    pacer: Pacer
    groups: Callable[[str, str], tuple[str, ...]]

    async def turn(self, clock: Clock, groups: tuple[str, ...]) -> None:
        """Wait for a turn in each group. `RateLimited`, with nothing sent, when one is too far away."""
        for group in groups:
            pace = self.limits[group]
            turn = await self.pacer.reserve(self._name(group), pace)
            if not turn.taken:
                message = f"{self.cloud} takes {pace}, and others are waiting already"
                raise RateLimited(self.cloud, message, turn.wait_s)
            if turn.wait_s > 0:
                await clock.sleep(turn.wait_s)

    async def note_pause(self, groups: tuple[str, ...], status: int, headers: Mapping[str, str]) -> None:
        """Keep to the pause that an answer asks for, here and in every other process."""
        pause_s = min(pause_of(status, headers), HOLD_MAX_S)
        if pause_s > 0 and groups:
            log.info("%s asks for a pause of %g s in %s", self.cloud, pause_s, groups[0])
            await self.pacer.pause(self._name(groups[0]), pause_s)

    def _name(self, group: str) -> str:
        return f"{self.cloud}/{self.account}/{self.limits[group].shares or group}"


def pause_of(status: int, headers: Mapping[str, str]) -> float:
    """Seconds to leave a cloud alone: `Retry-After` of a 429, or a window of `RateLimit` that is used up; else 0."""
    after = headers.get("retry-after", "")
    pauses = [float(after)] if status == 429 and after.isascii() and after.isdigit() else []
    return max([*pauses, *used_up_s(headers)], default=0.0)


def used_up_s(headers: Mapping[str, str]) -> list[float]:
    """Seconds until each exhausted window of the `RateLimit` header opens again: `"minute";r=0;t=12`."""
    windows = [dict(_FIELD.findall(window)) for window in _WINDOW.findall(headers.get("ratelimit", ""))]
    return [float(fields.get("t", 0)) for fields in windows if float(fields.get("r", 1)) == 0]
