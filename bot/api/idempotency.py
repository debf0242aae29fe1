"""POSTs that can spend: with the same Idempotency-Key the same call is carried out once and answered alike."""

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

_KEY = "A word of yours for this call: repeated with the same word, it is answered and done once."
#: The parameter of every route that can spend: whoever cannot know whether a call arrived sends it again with its key.
Repeat = Annotated[
    str,
    Header(min_length=1, max_length=200, alias="Idempotency-Key", description=_KEY),
]
#: The same where nothing is spent: who sends no key is answered each time as things stand.
MayRepeat = Annotated[str | None, Header(min_length=1, max_length=200, alias="Idempotency-Key", description=_KEY)]

#: A call's name in the ledger → the status and the body that it is answered with; raises `Refused` for a refusal.
Act = Callable[[str], Awaitable[tuple[int, Done]]]


async def once(desk: Dependencies, who: Principal, key: str, what: str, act: Act) -> JSONResponse:
    """Carry `act` out, or answer as the first time. `what` is all that must be the same the second time.

    Raises `Refused` when the key belongs to another call. What was refused changed nothing and is judged anew.
    """
    call = await idempotency.begin(desk.ctx, who.actor, key, what)
    if isinstance(call, Reply):
        raise ProblemRaised(call)
    if call.status is not None and call.answer is not None:
        return _answered(call.status, call.answer, {"Idempotency-Replayed": "true"})
    status, made = await act(f"rest:{call.key}"[:128])
    answer = made.model_dump(mode="json")
    await idempotency.finish(desk.ctx, call, status, answer)
    return _answered(status, answer, {})


def _answered(status: int, answer: dict[str, Any], headers: dict[str, str]) -> JSONResponse:
    if answer.get("url"):
        headers = {**headers, "Location": str(answer["url"])}
    return JSONResponse(answer, status, headers)
