"""A gate in front of a stand-in: chosen calls wait at it, before they are handled or before they are answered.

So a test can stop the program at an exact point without any hook in the program: what it waits for is outside.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class Which:
    """Calls by method and a pattern for the whole path."""

    method: str
    path: str

    def fits(self, method: str, path: str) -> bool:
        """Whether this call is meant."""
        return method == self.method and re.fullmatch(self.path, path) is not None


@dataclass(slots=True, eq=False)
class Held:
    """Calls that wait. `answered` ones have been handled already and only their reply waits.

    `let_go` lets them and all later ones pass; `drop` makes those that wait vanish, unhandled or
    unanswered.
    """

    which: Which
    answered: bool
    count: int = 0
    _here: asyncio.Condition = field(default_factory=asyncio.Condition)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _dropped: bool = False

    async def caught(self, count: int = 1, limit_s: float = 20.0) -> None:
        """Return when `count` calls have come to wait here. TimeoutError when they do not."""
        async with asyncio.timeout(limit_s), self._here:
            await self._here.wait_for(lambda: self.count >= count)

    def let_go(self) -> None:
        """Open the gate."""
        self._over.set()

    def drop(self) -> None:
        """Open the gate for later calls only."""
        self._dropped = True
        self._over.set()

    @property
    def is_over(self) -> bool:
        """Whether the gate stands open."""
        return self._over.is_set()

    async def wait(self) -> bool:
        """Wait at the gate; True when the call may go on."""
        async with self._here:
            self.count += 1
            self._here.notify_all()
        await self._over.wait()
        return not self._dropped


class Gate:
    """ASGI middleware; everything passes until somebody holds something."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._held: list[Held] = []

    def hold(self, which: Which, *, answered: bool = False) -> Held:
        """Let every call of this kind wait from now on, before it is handled, or before its reply goes out."""
        held = Held(which, answered)
        self._held.append(held)
        return held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, or let it wait first."""
        held = self._holder(scope) if scope["type"] == "http" else None
        if held is None:
            await self._app(scope, receive, send)
        elif not held.answered:
            if await held.wait():
                await self._app(scope, receive, send)
        else:
            reply: list[Message] = []

            async def keep(message: Message) -> None:
                reply.append(message)

            await self._app(scope, receive, keep)
            if await held.wait():
                for message in reply:
                    await send(message)

    def _holder(self, scope: Scope) -> Held | None:
        self._held = [held for held in self._held if not held.is_over]
        return next((held for held in self._held if held.which.fits(scope["method"], scope["path"])), None)
