"""Machines whose agents report: the API is served, and instances that are made from then on are told where."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from starlette.types import ASGIApp, Receive, Scope, Send

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.services.sessions import idle_termination
from providers.sandbox.agents import SandboxAgent
from tests.support.serving import serving
from tests.support.world import World

#: Less than the pause after which a look counts as having been away.
STEP_S = 100.0


class _Api:
    """The API of the process that runs now: a process that is killed and started again has another one."""

    def __init__(self, w: World) -> None:
        self._w = w
        self._of = w.ctx.db
        self._app = self._build()

    def _build(self) -> ASGIApp:
        app: ASGIApp = build_api(Dependencies(self._w.ctx, ApiSettings("C0GPU")), {})
        return app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._of is not self._w.ctx.db:
            self._of, self._app = self._w.ctx.db, self._build()
        await self._app(scope, receive, send)


@asynccontextmanager
async def listening(w: World) -> AsyncIterator[str]:
    """Serve the API to the sandboxes' machines; yields its address."""
    async with serving(_Api(w)) as url:
        w.ctx = replace(w.ctx, node_url=url)
        yield url


def agent(w: World, number: int = 0) -> SandboxAgent:
    """The agent of one of the machines that run."""
    return list(w.engine.nodes.running.values())[number]


async def pass_time(w: World, seconds: float) -> None:
    """Let time pass while the agents report and are looked at; the rest is done once, at the end."""
    left = seconds
    while left > 0:
        w.clock.advance(min(left, STEP_S))
        left -= STEP_S
        for cloud in {key.partition("/")[0] for key in w.engine.nodes.running}:
            await w.clouds[cloud].tick()
        await idle_termination.idle_terminations_due(w.ctx)
    await w.settle()
