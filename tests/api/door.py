"""The API over a whole service, spoken to with httpx; keys are made by the service that makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from bot.api.app import build_api, routes
from bot.api.dependencies import ApiSettings, Dependencies
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from ledger.kernel.actor import Actor, ActorKind
from tests.support.world import World

#: What the API says of itself; to make it takes half a second.
DOCUMENT: dict[str, Any] = routes({}).openapi()
ADA = Actor(ActorKind.OPERATOR, "ada")
JOB: dict[str, Any] = {"resources": {"gpu": "4090"}, "hours": 2, "reason": "fine-tune"}


@dataclass
class Door:
    """One application and its callers. Ada is an operator; Bob and Carol approve in Slack, Ada where a test says so."""

    w: World
    http: httpx.AsyncClient
    _numbers: Any = field(default_factory=count)

    async def key(self, name: str = "atlas", owner: str = "operator:ada", **more: Any) -> str:
        """A new key's token; a person owns themselves."""
        owner = "" if name.startswith("operator:") else owner
        made = await api_keys.create(
            self.w.ctx.db, self.w.ctx.labels, NewKey(name, owner, **more), ADA, self.w.clock.now()
        )
        assert made.ok, made
        return str(made.data["token"])

    async def call(self, method: str, path: str, key: str = "", **more: Any) -> httpx.Response:
        """One call; POSTs that need an Idempotency-Key get a new one."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if method == "POST":
            headers["Idempotency-Key"] = f"call-{next(self._numbers)}"
        headers |= more.pop("headers", {})
        return await self.http.request(method, f"/api/v1{path}", headers=headers, **more)

    async def asked(self, key: str, **changes: Any) -> str:
        """A request that has its offers; returns its id."""
        answer = await self.call("POST", "/sessions", key, json={**JOB, **changes})
        assert answer.status_code == 202, answer.text
        await self.w.settle()
        return str(answer.json()["request_id"])

    async def request(self, key: str, request_id: str) -> dict[str, Any]:
        """The request as this key sees it."""
        answer = await self.call("GET", f"/requests/{request_id}", key)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@asynccontextmanager
async def opened(w: World, settings: ApiSettings | None = None) -> AsyncIterator[Door]:
    """The application in this process, without a socket."""
    app = build_api(Dependencies(w.ctx, settings or ApiSettings("C0GPU")), {})
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://bot") as http:
        yield Door(w, http)


def code_of(answer: httpx.Response) -> str:
    """The stable code of a refusal, whose shape is checked."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["type"].endswith(body["code"])
    assert body["detail"].endswith((".", "…", "?")), body
    return str(body["code"])
