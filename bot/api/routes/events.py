"""The journal as server-sent events, and the ledger in figures for a monitor."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import PlainTextResponse, StreamingResponse

from bot.api.dependencies import AtDesk, caller, refusals
from bot.api.problems import ProblemRaised
from bot.rules.access.scopes import Scope
from bot.rules.values.reply_code import ReplyCode
from bot.services.access.api_keys import Principal
from bot.services.audit import event_stream
from bot.services.audit.metrics import exposition
from bot.services.runtime.commands import Reply
from ledger.models import Event

router = APIRouter(tags=["events"])
Reader = Annotated[Principal, caller(Scope.REQUESTS_READ)]
Monitor = Annotated[Principal, caller(Scope.METRICS_READ)]
MOST_STREAMS = 4
#: Looks without news between two comments that keep proxies from closing the connection.
QUIET = 15


@router.get(
    "/api/v1/events",
    response_class=StreamingResponse,
    responses={**refusals(), 200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(
    desk: AtDesk,
    who: Reader,
    last_event_id: Annotated[
        str | None,
        Header(
            pattern=r"^evt_[0-9a-z]{16}$",
            alias="Last-Event-ID",
            description="The id of the last event that was received; the stream goes on after it.",
        ),
    ] = None,
) -> StreamingResponse:
    """Everything that happens to what this key may see, as it happens; `Last-Event-ID` goes on after a break.

    Each event comes at least once: after a break those of the last seconds may come again, with the same id.
    """
    if desk.streams[who.key_id] >= MOST_STREAMS:
        raise ProblemRaised(
            Reply(False, ReplyCode.TOO_MANY_STREAMS, f"This key has {MOST_STREAMS} streams already; close one first.")
        )
    begun = await event_stream.begin(desk.ctx, who, last_event_id)
    if isinstance(begun, Reply):
        raise ProblemRaised(begun)

    async def lines() -> AsyncIterator[str]:
        desk.streams[who.key_id] += 1
        quiet = 0
        try:
            yield ": connected\n\n"
            async for found in begun.stream():
                quiet = 0 if found else quiet + 1
                if found:
                    yield "".join(map(_line, found))
                elif quiet % QUIET == 0:
                    yield ": nothing new\n\n"
        finally:
            desk.streams[who.key_id] -= 1

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _line(one: Event) -> str:
    told = {
        "id": one.id,
        "at": one.at.isoformat(),
        "kind": one.kind,
        "actor": one.actor,
        "subject": one.subject,
        "before": one.before,
        "after": one.after,
        "reason": one.reason,
    }
    return f"id: {one.id}\nevent: {one.kind}\ndata: {json.dumps(told, ensure_ascii=True)}\n\n"


@router.get("/metrics", response_class=PlainTextResponse, responses=refusals())
async def metrics(desk: AtDesk, _who: Monitor) -> PlainTextResponse:
    """The ledger in figures, in the text format of Prometheus; a monitor sends its key as a bearer token."""
    return PlainTextResponse(await exposition(desk.ctx), media_type="text/plain; version=0.0.4")
