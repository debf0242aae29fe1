"""The way of the machines' agents to the service: a check-in goes to a process that works, and may see it die."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.scenarios.simulation.process import Interrupted, Process

#: All agents report together and seldom, because each report costs a seed some milliseconds.
CHECKIN_S = 120.0
#: How often what looks at the agents runs.
LOOKED_AT_S = 140.0


class CheckIns:
    """Passes each call on; 503 while no process works."""

    def __init__(self, processes: Callable[[], Iterable[Process]]) -> None:
        self._processes = processes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one on. What a process that dies meanwhile had answered is lost."""
        process = next((each for each in self._processes() if each.works), None)
        app = process.switch.app if process is not None else None
        if process is not None and app is not None:

            async def answer() -> None:
                await app(scope, receive, send)

            with suppress(Interrupted):
                await process.do(answer())
            return
        await PlainTextResponse("down", 503)(scope, receive, send)
