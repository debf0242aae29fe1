"""The side of TensorDock's API around the machines: nodes, secrets, and the older API's billing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from providers.sandbox.api import ApiSandbox, Endpoint, Refused
from providers.sandbox.tensordock import faults as say
from providers.sandbox.tensordock.account import TensorDockAccount

SECRET_TYPES = frozenset({"SSHKEY", "SECRET", "GENERIC", "ssh"})


class TensorDockOtherRoutes(ApiSandbox[TensorDockAccount]):
    """Handlers that touch no machine."""

    #: The older API's key; its token is the newer one's with this at its end, so that one replacement spoils both.
    V0_KEY = "sandbox-tensordock-v0-key"

    async def hostnodes(self, request: Request, _body: dict[str, Any]) -> Response:
        """Nodes, by GPU if asked."""
        slug = request.query_params.get("gpu")
        nodes = [
            node
            for node in self.account.market.hostnodes()
            if slug is None or any(gpu["v0Name"] == slug for gpu in node["available_resources"]["gpus"])
        ]
        return JSONResponse({"data": {"hostnodes": nodes}})

    async def hostnode(self, request: Request, _body: dict[str, Any]) -> Response:
        """One node."""
        wanted = request.path_params["ref"]
        found = next((node for node in self.account.market.hostnodes() if node["id"] == wanted), None)
        return say.missing("Hostnode") if found is None else JSONResponse({"data": found})

    async def secrets(self, _request: Request, _body: dict[str, Any]) -> Response:
        """All secrets, without their values."""
        rows = [{k: v for k, v in secret.items() if k != "value"} for secret in self.account.secrets.values()]
        return JSONResponse({"data": {"secrets": rows}})

    async def add_secret(self, _request: Request, body: dict[str, Any]) -> Response:
        """Keep one."""
        data = body.get("data")
        attributes = data.get("attributes", {}) if isinstance(data, dict) else {}
        name, value, kind = (attributes.get(key) for key in ("name", "value", "type"))
        if not isinstance(name, str) or not isinstance(value, str) or kind not in SECRET_TYPES:
            return say.invalid("data.attributes", "Invalid input")
        made = self.account.add_secret(name, value, str(kind))
        return JSONResponse({"data": {k: v for k, v in made.items() if k != "value"}}, 201)

    async def secret(self, request: Request, _body: dict[str, Any]) -> Response:
        """One secret; only keys show their value."""
        found = self.account.secrets.get(str(request.path_params["ref"]))
        if found is None:
            return say.missing("Secret")
        public = found["type"] in {"SSHKEY", "ssh"}
        return JSONResponse({"data": {k: v for k, v in found.items() if public or k != "value"}})

    async def delete_secret(self, request: Request, _body: dict[str, Any]) -> Response:
        """Forget one."""
        found = self.account.secrets.pop(str(request.path_params["ref"]), None)
        if found is None:
            return say.missing("Secret")
        return JSONResponse({"data": {"type": "success", "attributes": {"message": "Secret deleted"}}})

    # ── v0 ───────────────────────────────────────────────────────────────────────────────────────

    def v0_routes(self) -> list[Route]:
        """The calls of the older API."""
        calls = {
            "auth/test": lambda _: self._success(),
            "billing/balance": self._v0_balance,
            "billing/summary": self._v0_summary,
        }
        return [Route(f"/api/v0/{path}", self._v0_call(answer), methods=["POST"]) for path, answer in calls.items()]

    def _v0_call(self, answer: Callable[[dict[str, str]], Response]) -> Endpoint:
        """A call with a form that holds the key. Its refusals come with 200."""

        async def endpoint(request: Request) -> Response:
            form = dict(parse_qsl((await request.body()).decode()))
            try:
                self.refuse("v0")
            except Refused as refused:
                return refused.answer
            if (form.get("api_key", ""), form.get("api_token", "")) != (self.V0_KEY, f"{self.API_KEY}-v0"):
                return say.V0_REFUSED
            return answer(form)

        return endpoint

    def _success(self, **body: Any) -> Response:
        word: Any = "true" if self.fault("v0_words") is not None else True
        return JSONResponse({"success": word, **body})

    def _v0_balance(self, _form: dict[str, str]) -> Response:
        """Credit left and the rate of everything."""
        account = self.account
        return self._success(
            balance=round(float(account.left_usd()), 6), hourly_cost=round(float(account.hourly_usd()), 6)
        )

    def _v0_summary(self, form: dict[str, str]) -> Response:
        """The expenses of one month."""
        try:
            return self._success(**self.account.expenses(form.get("period", "")))
        except ValueError:
            return JSONResponse({"success": False, "error": "Invalid period"})
