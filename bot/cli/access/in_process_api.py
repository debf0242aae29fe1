"""Serve the REST API inside this process, for an operator on the server and under the operator's name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx

from bot import logs
from bot.api.app import routes
from bot.api.dependencies import PRINCIPAL, ApiSettings, Dependencies
from bot.cli.access.api_client import KEY, URL, ApiClient, agent_header
from bot.cli.access.settings import explained, fail, operator, private_umask, settings
from bot.cli.command_table import load
from bot.clock import SystemClock
from bot.rules.access.scopes import Scope
from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.policy.policy import Policy
from bot.services.access.api_keys import Principal, agent_of
from bot.settings import Settings
from bot.settings.fields import LogLevel
from bot.wiring import build_context, close
from ledger.kernel.actor import Actor
from ledger.kernel.clock import Clock
from migrations import run as schema

#: For somebody who has no ledger here, because the service runs on another machine.
ELSEWHERE = f"To use a service elsewhere, set {URL} and {KEY} instead."


class _AsOperator:
    """Attach the operator as the principal of every call.

    Anybody who can read the ledger's file and its keys needs no other key.
    """

    def __init__(self, app: Any, who: Principal) -> None:
        self._app = app
        self._who = who

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one call."""
        scope.setdefault("state", {})[PRINCIPAL] = self._who
        await self._app(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _AskedInSlack:
    """Look people up in Slack: the `People` port.

    Slack's library is imported at the first look-up, which few commands need.
    """

    settings: Settings
    policy: Policy
    clock: Clock

    async def looked_up(self, actor: Actor) -> DeciderFacts:
        """Look up what Slack knows of a person; never raises for a network failure."""
        found: DeciderFacts = await load("access.in_process_people").looked_up(
            self.settings, self.policy, self.clock, actor
        )
        return found


@asynccontextmanager
async def opened(*, is_agent: bool = False) -> AsyncIterator[ApiClient]:
    """Open the API over this machine's ledger and clouds: for the operator, who may do everything, or their agent."""
    private_umask()
    found = settings()
    if found.log_level is not LogLevel.DEBUG:
        logs.configure(level="error", json=False)  # What people must know is in the answer.
    with explained():
        ctx = build_context(found, SystemClock())
    ctx.catalog.patience_s = None  # Nobody edits what a command has printed, so it waits for the whole market.
    if not found.missing_for_slack():
        ctx = replace(ctx, people=_AskedInSlack(found, ctx.policy, ctx.clock))
    try:
        with explained():
            try:
                await schema.require_newest(ctx.db)
            except schema.SchemaError as error:
                none = await schema.current(ctx.db) is None
                fail(f"{error} {ELSEWHERE}" if none else str(error))
        app = routes({})
        app.state.deps = Dependencies(
            ctx, ApiSettings(found.approvals_channel or found.operators_channel or "", acts=False)
        )
        who = Principal("", operator(), operator(), frozenset(Scope))
        if is_agent:
            who = await agent_of(ctx.db, operator(), ctx.clock.now())
        transport = httpx.ASGITransport(app=_AsOperator(app, who), raise_app_exceptions=False)
        said = agent_header(is_agent=is_agent)
        async with httpx.AsyncClient(transport=transport, base_url="http://here", headers=said, timeout=None) as http:  # noqa: S113
            yield ApiClient(http)
    finally:
        await close(ctx)
