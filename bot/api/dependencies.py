"""Hold what every route works with, and check the API key and its scope for each route."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from bot.api.market_cache import MarketCache
from bot.api.problems import Problem, ProblemRaised
from bot.rules.access.agents import AGENT_HEADER
from bot.rules.access.scopes import FOR_PEOPLE, Scope
from bot.rules.values.reply_code import ReplyCode
from bot.services.access.api_keys import Principal
from bot.services.runtime.commands import Reply
from bot.services.runtime.context import Context
from ledger.kernel.actor import ActorKind

#: For the documentation only: the middleware has read the key before any route is looked for.
BEARER = HTTPBearer(auto_error=False, description="An API key: gpuk_…", bearerFormat="gpuk")
PRINCIPAL = "principal"
#: Where the middleware puts the token of a node, after it checked the token's format.
NODE = "node"
CALLS_PER_MINUTE = 600
#: Where the OpenAPI document says which scope an operation needs.
SCOPE_FIELD = "x-scope"

Responses = dict[int | str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Settings of the REST API.

    Slack shows requests of programs in `channel`, where approvers see them. Calls are counted per key and minute.

    `acts`: this process carries requests out. A command on the server does not, and warns when no service runs.
    """

    channel: str = ""
    calls_per_minute: int = CALLS_PER_MINUTE
    wrong_keys_per_minute: int = 30
    body_bytes: int = 64 * 1024
    checkins_per_minute: int = 12
    acts: bool = True


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Dependencies of the routes: the services' context, the settings and the caches of this process."""

    ctx: Context
    settings: ApiSettings = field(default_factory=ApiSettings)
    #: How many streams each key has open in this process.
    streams: Counter[str] = field(default_factory=Counter)
    market: MarketCache = field(default_factory=MarketCache)


async def deps_of(request: Request) -> Dependencies:  # A plain function would run in a thread.
    """Return the dependencies of the application that serves this call."""
    deps: Dependencies = request.app.state.deps
    return deps


Deps = Annotated[Dependencies, Depends(deps_of)]


#: The answer to an AI agent, whose key may have the scope.
FOR_PEOPLE_ONLY = Reply(False, ReplyCode.SCOPE_MISSING, "An AI agent can't do this, whatever its key may do.")


def principal_of(request: Request) -> Principal:
    """Return the principal of a call: with the header of AI agents it has fewer rights than its key."""
    who: Principal = request.scope["state"][PRINCIPAL]
    is_agent = AGENT_HEADER in request.headers or who.actor.kind is ActorKind.AGENT
    return who.as_agent() if is_agent else who


def caller(scope: Scope) -> Any:
    """Return a dependency that yields the principal behind the key; it raises `ProblemRaised` without `scope`."""

    def allowed(request: Request) -> Principal:
        who = principal_of(request)
        # An administrator's key may do everything but approve: each key needs that scope of its own.
        if scope not in who.scopes and (Scope.ADMIN not in who.scopes or scope is Scope.APPROVALS_WRITE):
            if who.is_agent and scope in FOR_PEOPLE:
                raise ProblemRaised(FOR_PEOPLE_ONLY)
            sentence = f"This key lacks the scope {scope}. Ask an operator for a key that has it."
            raise ProblemRaised(Reply(False, ReplyCode.SCOPE_MISSING, sentence))
        return who

    return Security(_checked(allowed, scope))


def _checked(check: Callable[[Request], Principal], scope: Scope) -> Callable[..., Awaitable[Principal]]:
    # A plain function would run in a thread, for each call.
    async def principal(request: Request, _key: Annotated[Any, Security(BEARER)] = None) -> Principal:
        return check(request)

    principal.__doc__ = f"Needs the scope {scope}."
    setattr(principal, SCOPE_FIELD, scope)
    return principal


#: The principal of a call to a route, named by the scope that the route needs.
MarketReader = Annotated[Principal, caller(Scope.MARKET_READ)]
RequestReader = Annotated[Principal, caller(Scope.REQUESTS_READ)]
Requester = Annotated[Principal, caller(Scope.REQUESTS_WRITE)]
Decider = Annotated[Principal, caller(Scope.APPROVALS_WRITE)]
SessionReader = Annotated[Principal, caller(Scope.SESSIONS_READ)]
SessionOwner = Annotated[Principal, caller(Scope.SESSIONS_WRITE)]
LedgerWriter = Annotated[Principal, caller(Scope.LEDGER_WRITE)]
WebhookOwner = Annotated[Principal, caller(Scope.WEBHOOKS_WRITE)]
Monitor = Annotated[Principal, caller(Scope.METRICS_READ)]
Admin = Annotated[Principal, caller(Scope.ADMIN)]


def refusals(*codes: int) -> Responses:
    """List the refusals of a route for the documentation: its own codes and those of the middleware."""
    return {
        code: {"model": Problem, "content": {"application/problem+json": {}}}
        for code in sorted({401, 403, 413, 422, 429, *codes})
    }
