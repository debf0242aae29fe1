"""What people see, as one process makes it: a request card, a page of the market, a list of 500 sessions.

The program's own start and its list of sessions through REST are in `startup`.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from bot.rules.grammar.parser import ParsedCommand
from bot.slack import commands
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.identity import Directory
from bot.slack.inbound import InboundKind, InboundMessage
from bot.slack.render import render
from bot.slack.web import Web
from ledger.core.claims import Claim
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import InstanceState, NotificationKind, RequestState, SessionState
from ledger.models import Notification
from providers.contract import Provider
from tests.api.door import opened
from tests.bench.databases import Line
from tests.bench.market import CLOUDS, SIZE, Shelf, offers
from tests.slack.conftest import Stage, staged
from tests.support import rows
from tests.support.clock import SteppedClock
from tests.support.databases import copy_sqlite, migrated_sqlite
from tests.support.world import World

ROUNDS = 15
SESSIONS = 500
#: Nobody has looked at the market for so long, so that the clouds are asked again.
STALE_S = 61
WIDE = {"min_vram": "24", "count": "1-8"}


async def report(sessions: int = SESSIONS, size: int = SIZE, rounds: int = ROUNDS) -> AsyncIterator[Line]:
    """Medians in milliseconds of this process's CPU, on SQLite."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        db, clock = Database(copy_sqlite(migrated_sqlite(folder), folder)), SteppedClock()
        try:
            async with staged(db, clock) as stage:
                yield "request card, from its row to its blocks", await _card(stage, rounds), "aim < 25 ms"
                for line in (*await _lists(stage, sessions, rounds), *await _pages(stage.w, size, rounds)):
                    yield line
        finally:
            await db.close()


async def _card(stage: Stage, rounds: int) -> str:
    await stage.ask()
    books = await stage.w.books()
    row: Notification = next(one for one in books.notifications if one.kind is NotificationKind.REQUEST_MESSAGE)
    shown = await render(stage.ctx, stage.settings, row)
    if not any(block["type"] == "actions" for block in shown.message.blocks):
        raise RuntimeError("the card has no buttons, so its time says nothing")
    return await _median_ms(lambda: render(stage.ctx, stage.settings, row), rounds)


async def _lists(stage: Stage, sessions: int, rounds: int) -> list[Line]:
    """Answer `/gpu list` and `/gpu list team` for an approver who runs so many machines."""
    who = Actor(ActorKind.SLACK, "U0BOB", "T0PRACTICE")
    async with stage.ctx.db.write() as tx:
        for _ in range(sessions):
            asked = await rows.request(tx, RequestState.APPROVED, requester=who.ref)
            owned = await rows.session(tx, SessionState.RUNNING, of=asked)
            await rows.instance(tx, InstanceState.LIVE, of=owned)
    web, ctx = Web(stage.settings), stage.door.ctx
    handler = HandlerContext(ctx, stage.settings, web, Directory(web, ctx.clock, ctx.policy, who.team))
    typed = InboundMessage(InboundKind.COMMAND, user=who.id, team=who.team or "", channel="C0GPU", text="list")
    # Only the worker that took a stored message looks at its claim.
    job = HandlerJob("bench", cast("Claim", None), typed)

    async def listed(action: str) -> str:
        message = await commands.HANDLERS["list"](handler, job, ParsedCommand("list", action=action))
        return message.text if message is not None else ""

    lines = []
    try:
        for action in ("", "team"):
            if "RTX 4090" not in await listed(action):
                raise RuntimeError("nothing was listed, so its time says nothing")
            took = await _median_ms(partial(listed, action), rounds)
            lines.append((f"/gpu list {action}".rstrip() + f", {sessions} running", took, "aim < 250 ms"))
    finally:
        await web.close()
    return lines


async def _pages(w: World, size: int, rounds: int) -> list[Line]:
    """Read the market over REST, without a socket: the first page of new prices, and one that follows."""
    paid = [name for name in CLOUDS if name != "kaggle"]
    shelves = {name: Shelf(name, tuple(offers(name, size // len(paid), w.clock))) for name in paid}
    real = w.ctx.providers
    w.use(cast("Mapping[str, Provider]", shelves))
    try:
        async with opened(w) as door:
            key = await door.key()

            async def page(**params: str) -> dict[str, Any]:
                answer = await door.call("GET", "/inventory", key, params={**WIDE, **params})
                answer.raise_for_status()
                found: dict[str, Any] = answer.json()
                return found

            async def first() -> None:
                w.clock.advance(STALE_S)
                await page()

            new = await _median_ms(first, rounds)
            cursor = (await page())["next_cursor"]
            following = await _median_ms(lambda: page(cursor=cursor), rounds)
    finally:
        await w.ctx.catalog.close()
        w.use(real)
    return [
        (f"first page of {size:,} offers, new prices, over REST", new, "aim < 150 ms"),
        (f"next page of {size:,} offers, over REST", following, "aim < 25 ms"),
    ]


async def _median_ms(work: Callable[[], Awaitable[object]], rounds: int) -> str:
    """Median milliseconds of this process's CPU, after one round that is not counted."""
    await work()
    took = []
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        await work()
        took.append((time.process_time() - began) * 1_000)
    return f"{statistics.median(took):.1f} ms"
