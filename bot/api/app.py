"""Build the HTTP application: health for everybody, /api/v1 for API keys, and the page that describes both."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from bot.api import problems, reference
from bot.api.auth_middleware import AuthMiddleware
from bot.api.dependencies import SCOPE_FIELD, Dependencies
from bot.api.health import CHECK_TIMEOUT_S, Checks, health_routes
from bot.api.people_names import NamesInAnswers
from bot.api.routes import (
    agent,
    approvals,
    events,
    keys,
    ledger,
    market,
    money,
    operators,
    people,
    requests,
    secrets,
    sessions,
    volume_routes,
    webhooks,
)
from bot.services.nodes.checkins import Checkins
from bot.services.runtime import agent_archive

DESCRIPTION = """A program requests GPUs, an approver approves, and every session ends.

Every refusal is `application/problem+json`. Its `code` keeps its meaning (docs/errors.md); its sentence is the one that
Slack shows. Money is decimal dollars in strings, and times are UTC. A POST that can spend takes an `Idempotency-Key`:
the same call again gets the same answer. Lists are pages, the newest first."""


def routes(checks: Checks, timeout_s: float = CHECK_TIMEOUT_S) -> FastAPI:
    """Build the application without authentication; the documentation is generated from it."""
    work = (market, requests, approvals, sessions, volume_routes, people, money, ledger)
    nouns = [noun.router for noun in (*work, keys, secrets, webhooks, operators, events)]
    for router in nouns:
        _name_scopes(router)
    # `include_router` would make each route once more, and look for a call's route twice.
    every = [route for one in (health_routes(checks, timeout_s), *nouns, agent.router) for route in one.routes]
    api = _Api(
        title="GPU Shopper",
        version="1",
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        routes=every,
    )
    problems.install(api)
    api.add_middleware(NamesInAnswers)
    _serve_reference(api)
    api.add_route(agent_archive.PATH, agent.archive, include_in_schema=False)
    api.state.routes = [route for route in every if isinstance(route, APIRoute)]
    return api


def _serve_reference(api: FastAPI) -> None:
    """Serve the reference page at `/docs` and what it is made from at `/openapi.json`; neither describes itself."""
    pages = reference.OpenPages(api.openapi)
    api.add_route("/docs", pages.docs, include_in_schema=False)
    api.add_route("/openapi.json", pages.openapi, include_in_schema=False)


class _Api(FastAPI):
    """Describe refusals in OpenAPI as application/problem+json, and as nothing else."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; it is made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            for methods in document["paths"].values():
                for operation in methods.values():
                    for answer in operation["responses"].values():
                        _as_problem(answer.get("content", {}))
        return self.openapi_schema or {}


def _as_problem(content: dict[str, Any]) -> None:
    if problems.MEDIA_TYPE in content and "application/json" in content:
        content[problems.MEDIA_TYPE] = content.pop("application/json")


def _name_scopes(router: APIRouter) -> None:
    """Write the scope that each route checks into its description, taken from the check itself."""
    for route in router.routes:
        if isinstance(route, APIRoute):
            scopes = [getattr(one.call, SCOPE_FIELD, None) for one in route.dependant.dependencies]
            route.openapi_extra = {SCOPE_FIELD: next(str(scope) for scope in scopes if scope)}


def build_api(deps: Dependencies, checks: Checks, timeout_s: float = CHECK_TIMEOUT_S) -> Any:
    """Build what the HTTP server serves beside Slack: the routes behind authentication."""
    api = routes(checks, timeout_s)
    api.state.deps = deps
    api.state.checkins = Checkins(deps.ctx)
    return AuthMiddleware(api, deps)
