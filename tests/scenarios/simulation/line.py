"""The way of one process to the clouds, with the faults of the seed on every call."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

import httpx
from starlette.types import ASGIApp

from providers.sandbox.engine import Engine
from tests.scenarios.simulation.process import Process
from tests.scenarios.simulation.swarm import Profile, WireFault
from tests.scenarios.simulation.troubles.kinds import Troubles
from tests.scenarios.simulation.troubles.short import kind_of, shortened
from tests.support.clock import SteppedClock
from tests.support.wire import Wire

SLOW_S, LATE_S = (1.0, 25.0), (1.0, 300.0)
#: A cache answers with a listing that is at most so old.
STALE = timedelta(seconds=20)


@dataclass
class Weather:
    """What decides about each call. Once `is_calm`, nothing befalls it any more."""

    random: Random
    profile: Profile
    engine: Engine
    clock: SteppedClock
    troubles: Troubles
    is_calm: bool = False
    befell: Counter[str] = field(default_factory=Counter)
    #: Until when each cloud cannot be reached.
    dark: dict[str, datetime] = field(default_factory=dict)
    cached: dict[str, tuple[datetime, httpx.Response]] = field(default_factory=dict)

    def arm(self, cloud: str) -> None:
        """Arm what the cloud itself does wrong next, each fault at most once at a time."""
        if self.is_calm:
            return
        waiting = {one.name for one in self.engine.faults.armed(cloud)}
        for name, rate in self.profile.sandbox.get(cloud, {}).items():
            if name not in waiting and self.random.random() < rate:
                self.engine.faults.arm(cloud, name)

    def on_call(self, cloud: str) -> WireFault | None:
        """What befalls a call on its way."""
        if self.is_calm:
            return None
        if self.clock.now() < self.dark.get(cloud, self.clock.now()):
            return WireFault.REFUSED
        for fault, rate in self.profile.wire.items():
            if self.random.random() < rate:
                self.befell[fault.name] += 1
                return fault
        return None


class Line(Wire):
    """A wire of one process."""

    def __init__(self, app: ASGIApp, process: Process, weather: Weather, later: Callable[[float, httpx.Request], None]):
        super().__init__(app)
        self._process = process
        self._weather = weather
        self._later = later

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One exchange."""
        weather, random = self._weather, self._weather.random
        cloud = request.url.path.split("/")[1]
        weather.arm(cloud)
        fault = weather.on_call(cloud)
        await asyncio.sleep(random.uniform(0, weather.profile.latency_s))
        if self._process.is_dead or fault is WireFault.REFUSED:
            raise httpx.ConnectError("no connection", request=request)
        if fault is WireFault.LOST_REQUEST:
            raise httpx.ReadError("the connection broke", request=request)
        if fault is WireFault.GATEWAY_BEFORE:
            return httpx.Response(503, text="<html>503</html>", request=request)
        if fault is WireFault.LATE:
            self._later(random.uniform(*LATE_S), request)
            await asyncio.sleep((request.extensions.get("timeout") or {}).get("read") or 10.0)
            raise httpx.ReadTimeout("the reply took too long", request=request)
        if fault is WireFault.SLOW:
            await asyncio.sleep(random.uniform(*SLOW_S))
        if fault is WireFault.STALE and (cached := self._stale(request)) is not None:
            return cached
        answer = await super().handle_async_request(request)
        await asyncio.sleep(0)
        if fault is WireFault.LOST_REPLY or self._process.is_dead:
            raise httpx.ReadError("the connection broke", request=request)
        if fault is WireFault.GATEWAY_AFTER:
            return httpx.Response(503, text="<html>503</html>", request=request)
        share = self._share(cloud, request)
        if share is not None and answer.status_code == httpx.codes.OK:
            answer = shortened(answer, share, weather.troubles.random)
        if request.method == "GET" and answer.status_code == httpx.codes.OK:
            weather.cached[str(request.url.raw_path)] = (weather.clock.now(), answer)
        return answer

    def _share(self, cloud: str, request: httpx.Request) -> float | None:
        """Which share of its rows an answer has; None: all of them."""
        short = self._weather.troubles.short
        kind = kind_of(cloud, request) if short else None
        return short.get((cloud, kind)) if kind is not None else None

    def _stale(self, request: httpx.Request) -> httpx.Response | None:
        at, answer = self._weather.cached.get(str(request.url.raw_path), (None, None))
        if request.method != "GET" or at is None or answer is None or self._weather.clock.now() - at > STALE:
            return None
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content, request=request)
