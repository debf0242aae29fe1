"""What every route works with, and the two questions that a route asks: whose key is this, and may it do that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from bot.api.market_cache import MarketCache
from bot.api.problems import Problem, ProblemRaised
from bot.rules.access.scopes import Scope
from bot.rules.values.reply_code import ReplyCode
from bot.services.access.api_keys import Principal
from bot.services.runtime.commands import Reply
from bot.services.runtime.context import Context

#: For the documentation only: the middleware has read the key before any route is looked for.
BEARER = HTTPBearer(auto_error=False, description="An API key: gpuk_…", bearerFormat="gpuk")
PRINCIPAL = "principal"
#: Where the middleware leaves the token of a node, whose shape it has checked.
NODE = "node"
CALLS_PER_MINUTE = 600
#: Where the OpenAPI document says which scope an operation needs.
SCOPE_FIELD = "x-scope"

Responses = dict[int | str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """`channel` is where requests of programs are shown to those who decide; calls are counted per key and minute.

    `acts`: this process works on what is asked. A command on the server does not, and says so when nobody else does.
    """

    channel: str = ""
    calls_per_minute: int = CALLS_PER_MINUTE
    wrong_keys_per_minute: int = 30
    body_bytes: int = 64 * 1024
    checkins_per_minute: int = 12
    acts: bool = True


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Handed to every route."""

    ctx: Context
    settings: ApiSettings = field(default_factory=ApiSettings)
    #: How many streams each key has open in this process.
    streams: Counter[str] = field(default_factory=Counter)
    market: MarketCache = field(default_factory=MarketCache)


def desk_of(request: Request) -> Dependencies:
    """The desk of the application that serves this call."""
    desk: Dependencies = request.app.state.desk
    return desk


AtDesk = Annotated[Dependencies, Depends(desk_of)]


def caller(scope: Scope) -> Any:
    """A dependency: the principal behind the key, when it has `scope`. Raises `Refused` when it has not."""

    def allowed(request: Request) -> Principal:
        who: Principal = request.scope["state"][PRINCIPAL]
        # An administrator's key may do everything but decide: that is said for each key.
        if scope not in who.scopes and (Scope.ADMIN not in who.scopes or scope is Scope.APPROVALS_WRITE):
            sentence = f"This key lacks the scope {scope}; ask for a key that has it."
            raise ProblemRaised(Reply(False, ReplyCode.SCOPE_MISSING, sentence))
        return who

    return Security(_checked(allowed, scope))


def _checked(check: Callable[[Request], Principal], scope: Scope) -> Callable[..., Principal]:
    def principal(request: Request, _key: Annotated[Any, Security(BEARER)] = None) -> Principal:
        return check(request)

    principal.__doc__ = f"Needs the scope {scope}."
    setattr(principal, SCOPE_FIELD, scope)
    return principal


def refusals(*codes: int) -> Responses:
    """What a route may answer besides its success, for the documentation: these and what the middleware answers."""
    return {
        code: {"model": Problem, "content": {"application/problem+json": {}}}
        for code in sorted({401, 403, 413, 422, 429, *codes})
    }
