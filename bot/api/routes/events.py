"""Stream the journal as server-sent events, and serve the ledger's metrics."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import PlainTextResponse, StreamingResponse

from bot.api.dependencies import Deps, Monitor, RequestReader, refusals
from bot.api.problems import ProblemRaised
from bot.api.streams import CountedStream, count_one
from bot.services.audit import event_stream
from bot.services.audit.metrics import exposition
from bot.services.runtime.commands import Reply
from bot.services.runtime.context import Context
from ledger.kernel.secret_shapes import without_signatures_in
from ledger.models import Event

router = APIRouter(tags=["events"])
#: Polls without news between two comments that keep proxies from closing the connection.
QUIET = 15


@router.get(
    "/api/v1/events",
    response_class=StreamingResponse,
    responses={**refusals(), 200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(
    deps: Deps,
    who: RequestReader,
    last_event_id: Annotated[
        str | None,
        Header(
            pattern=r"^evt_[0-9a-z]{16}$",
            alias="Last-Event-ID",
            description="The id of the last event that was received; the stream continues after it.",
        ),
    ] = None,
) -> StreamingResponse:
    """Stream every event that this key may see; send `Last-Event-ID` to continue after a break.

    Each event arrives once, in the order of the journal and within a second. After a break the stream continues
    directly behind the event that `Last-Event-ID` names.
    """
    count_one(deps.streams, who.key_id)
    try:
        begun = await event_stream.begin(deps.ctx, who, last_event_id)
        if isinstance(begun, Reply):
            raise ProblemRaised(begun)
    except BaseException:
        deps.streams[who.key_id] -= 1
        raise

    ctx = deps.ctx

    async def lines() -> AsyncIterator[str]:
        quiet = 0
        yield ": connected\n\n"
        async for found in begun.stream():
            quiet = 0 if found else quiet + 1
            if found:
                await ctx.names.refresh(ctx.db, ctx.clock)
                yield "".join(_line(ctx, one) for one in found)
            elif quiet % QUIET == 0:
                yield ": nothing new\n\n"

    return CountedStream(deps.streams, who.key_id, lines(), "text/event-stream", {"X-Accel-Buffering": "no"})


def _line(ctx: Context, one: Event) -> str:
    names = ("kind", "actor", "subject", "before", "after", "reason")
    shown = {"id": one.id, "at": one.at.isoformat(), **{name: getattr(one, name) for name in names}}
    shown = without_signatures_in(ctx.names.in_answer(ctx.policy, shown))
    return f"id: {one.id}\nevent: {one.kind}\ndata: {json.dumps(shown, ensure_ascii=True)}\n\n"


@router.get("/metrics", response_class=PlainTextResponse, responses=refusals())
async def metrics(deps: Deps, _who: Monitor) -> PlainTextResponse:
    """Return the ledger's metrics in the text format of Prometheus; a monitor sends its key as a bearer token."""
    return PlainTextResponse(await exposition(deps.ctx), media_type="text/plain; version=0.0.4")
