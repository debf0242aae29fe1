"""The HTTP application: health for everybody, /api/v1 for those with a key, and the description of both."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from bot.api import problems
from bot.api.desk import SCOPE_FIELD, Desk
from bot.api.gate import Gate
from bot.api.health import CHECK_TIMEOUT_S, Checks, health_routes
from bot.api.routes import keys, market, requests, sessions

DESCRIPTION = """GPUs with a human gate: a program asks, a person decides, and nothing is left running.

Every refusal is `application/problem+json` with a stable `code` (docs/errors.md) and the sentence that Slack shows.
Money is decimal dollars as strings, times are UTC. A POST that can spend takes an `Idempotency-Key`: the same call
again gets the same answer. Lists are pages, the newest first."""


def routes(checks: Checks, timeout_s: float = CHECK_TIMEOUT_S) -> FastAPI:
    """The application without its gate: for the documentation, which is generated from it."""
    api = FastAPI(
        title="GPU Shopper",
        version="1",
        description=DESCRIPTION,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(api)
    api.include_router(health_routes(checks, timeout_s))
    for noun in (market, requests, sessions, keys):
        _name_scopes(noun.router)
        api.include_router(noun.router)
    return api


def _name_scopes(router: APIRouter) -> None:
    """Write the scope that each route checks into its description, from the check itself."""
    for route in router.routes:
        if isinstance(route, APIRoute):
            scopes = [getattr(one.call, SCOPE_FIELD, None) for one in route.dependant.dependencies]
            route.openapi_extra = {SCOPE_FIELD: next(str(scope) for scope in scopes if scope)}


def build_api(desk: Desk, checks: Checks, timeout_s: float = CHECK_TIMEOUT_S) -> Any:
    """What the HTTP server serves beside Slack."""
    api = routes(checks, timeout_s)
    api.state.desk = desk
    return Gate(api, desk)
