"""Carry a POST that can spend out at most once per Idempotency-Key, and replay its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Header
from fastapi.responses import JSONResponse

from bot.api.dependencies import Dependencies
from bot.api.problems import ProblemRaised
from bot.api.schemas.base import Done
from bot.services.access.api_keys import Principal
from bot.services.runtime import idempotency
from bot.services.runtime.commands import Reply

_KEY = "A name that you choose for this call: repeated with the same name, it is carried out once and answered alike."
#: The parameter of every route that can spend: a caller who got no answer repeats the call with the same key.
Repeat = Annotated[str, Header(min_length=1, max_length=200, alias="Idempotency-Key", description=_KEY)]
#: The same where nothing is spent: without a key the call is carried out each time.
MayRepeat = Annotated[str | None, Header(min_length=1, max_length=200, alias="Idempotency-Key", description=_KEY)]

#: A call's name in the ledger → the status and the body of its answer; raises `ProblemRaised` for a refusal.
Act = Callable[[str], Awaitable[tuple[int, Done]]]


async def once(deps: Dependencies, who: Principal, key: str, what: str, act: Act) -> JSONResponse:
    """Carry `act` out at most once per key, or replay the first answer.

    `what` is everything that must be the same when the call is repeated.

    Raises `ProblemRaised` when the key belongs to another call. A refused call changed nothing, so it is checked again.
    """
    call = await idempotency.begin(deps.ctx, who.actor, key, what)
    if isinstance(call, Reply):
        raise ProblemRaised(call)
    if call.status is not None and call.answer is not None:
        return _answered(call.status, call.answer, {"Idempotency-Replayed": "true"})
    status, made = await act(f"rest:{call.key}"[:128])
    answer = made.model_dump(mode="json")
    await idempotency.finish(deps.ctx, call, status, answer)
    return _answered(status, answer, {})


def _answered(status: int, answer: dict[str, Any], headers: dict[str, str]) -> JSONResponse:
    if answer.get("url"):
        headers = {**headers, "Location": str(answer["url"])}
    return JSONResponse(answer, status, headers)
