"""The side of TensorDock's API around the machines: nodes, secrets, and the older API's billing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from providers.sandbox.engine import SandboxCloud
from providers.sandbox.tensordock import faults as say
from providers.sandbox.tensordock.account import Account

SECRET_TYPES = frozenset({"SSHKEY", "SECRET", "GENERIC", "ssh"})


class Side:
    """Handlers that touch no machine. `account` is asked each time, because a reset replaces it."""

    def __init__(self, cloud: SandboxCloud, account: Callable[[], Account], v0: tuple[str, str]) -> None:
        self._cloud = cloud
        self._account = account
        self._v0 = v0

    async def hostnodes(self, request: Request, _body: Any) -> Response:
        """Nodes, by GPU if asked."""
        slug = request.query_params.get("gpu")
        nodes = [
            node
            for node in self._account().market.hostnodes()
            if slug is None or any(gpu["v0Name"] == slug for gpu in node["available_resources"]["gpus"])
        ]
        return JSONResponse({"data": {"hostnodes": nodes}})

    async def hostnode(self, request: Request, _body: Any) -> Response:
        """One node."""
        wanted = request.path_params["ref"]
        found = next((node for node in self._account().market.hostnodes() if node["id"] == wanted), None)
        return say.missing("Hostnode") if found is None else JSONResponse({"data": found})

    async def secrets(self, _request: Request, _body: Any) -> Response:
        """All secrets, without their values."""
        rows = [{k: v for k, v in secret.items() if k != "value"} for secret in self._account().secrets.values()]
        return JSONResponse({"data": {"secrets": rows}})

    async def add_secret(self, _request: Request, body: Any) -> Response:
        """Keep one."""
        data = body.get("data") if isinstance(body, dict) else None
        attributes = data.get("attributes", {}) if isinstance(data, dict) else {}
        name, value, kind = (attributes.get(key) for key in ("name", "value", "type"))
        if not isinstance(name, str) or not isinstance(value, str) or kind not in SECRET_TYPES:
            return say.invalid("data.attributes", "Invalid input")
        made = self._account().add_secret(name, value, str(kind))
        return JSONResponse({"data": {k: v for k, v in made.items() if k != "value"}}, 201)

    async def secret(self, request: Request, _body: Any) -> Response:
        """One secret; only keys show their value."""
        found = self._account().secrets.get(str(request.path_params["ref"]))
        if found is None:
            return say.missing("Secret")
        public = found["type"] in {"SSHKEY", "ssh"}
        return JSONResponse({"data": {k: v for k, v in found.items() if public or k != "value"}})

    async def delete_secret(self, request: Request, _body: Any) -> Response:
        """Forget one."""
        found = self._account().secrets.pop(str(request.path_params["ref"]), None)
        if found is None:
            return say.missing("Secret")
        return JSONResponse({"data": {"type": "success", "attributes": {"message": "Secret deleted"}}})

    # ── v0 ───────────────────────────────────────────────────────────────────────────────────────

    async def _v0_form(self, request: Request) -> dict[str, str] | Response:
        """The form of a call with the right key, or its refusal, which comes with 200."""
        form = dict(parse_qsl((await request.body()).decode()))
        if self._cloud.fault("v0_503") is not None:
            return say.page(503)
        if (params := self._cloud.fault("v0_429")) is not None:
            return say.too_often(str(params.get("form", "json")), params.get("retry_after", 5))
        if self._cloud.fault("v0_html") is not None:
            return say.page(200)
        given = (form.get("api_key", ""), form.get("api_token", ""))
        if given != self._v0 or self._cloud.fault("v0_auth") is not None:
            return JSONResponse({"success": False, "error": "Invalid API key or token"})
        return form

    def _success(self, **body: Any) -> Response:
        word: Any = "true" if self._cloud.fault("v0_words") is not None else True
        return JSONResponse({"success": word, **body})

    async def v0_test(self, request: Request) -> Response:
        """Whether the key is good."""
        form = await self._v0_form(request)
        return form if isinstance(form, Response) else self._success()

    async def v0_balance(self, request: Request) -> Response:
        """Credit left and the rate of everything."""
        form = await self._v0_form(request)
        if isinstance(form, Response):
            return form
        account = self._account()
        return self._success(
            balance=round(float(account.left_usd()), 6), hourly_cost=round(float(account.hourly_usd()), 6)
        )

    async def v0_summary(self, request: Request) -> Response:
        """The expenses of one month."""
        form = await self._v0_form(request)
        if isinstance(form, Response):
            return form
        try:
            return self._success(**self._account().expenses(form.get("period", "")))
        except ValueError:
            return JSONResponse({"success": False, "error": "Invalid period"})
