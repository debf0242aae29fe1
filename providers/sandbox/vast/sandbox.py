"""Vast.ai's HTTP API, served locally from the documented and observed behaviour."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from providers.sandbox.engine import CreateCall, SandboxCloud, TrueInstance
from providers.sandbox.faults import LostReply
from providers.sandbox.vast import faults as say
from providers.sandbox.vast.account import Account
from providers.sandbox.vast.instance import Contract, Phase
from providers.sandbox.vast.market import Slice
from providers.sandbox.vast.routes_read import Pages
from providers.sandbox.vast.search import BadQuery, search

Answer = Callable[[Request, dict[str, Any]], Awaitable[Response]]
OUTBID = {
    "outbid_a": Phase("exited", cur="stopped", intended="stopped"),
    "outbid_b": Phase("exited", cur="stopped", intended="running"),
}
LABEL_MAX = 1024


class VastSandbox(SandboxCloud):
    """One Vast.ai account. Paths and bodies are those of console.vast.ai."""

    name = "vast"
    FAULTS = say.FAULTS
    CREATE_FAULTS = say.CREATE_FAULTS
    DISTURBANCES = say.DISTURBANCES
    API_KEY = "sandbox-vast-key-5d41402abc4b2a76"

    account: Account

    def environment(self, url: str) -> dict[str, str]:
        """Both are read by the official client too."""
        return {"VAST_API_KEY": self.API_KEY, "VAST_URL": url}

    def reset(self) -> None:
        """A new account on a new market."""
        self.account = Account(self.engine)
        self._last_call: dict[str, float] = {}
        self._searches: list[float] = []

    # ── the account from outside ─────────────────────────────────────────────────────────────────

    def reachable(self) -> list[str]:
        """Contracts whose SSH answers now."""
        self.account.settle()
        return [str(c.ref) for c in self.account.living.at(self.now) if c.reachable(self.now)]

    def variables(self, ref: str) -> Mapping[str, str]:
        """What the contract was made with."""
        return {pair[0]: pair[1] for pair in self.account.contracts[int(ref)].extra_env}

    def instances(self) -> list[TrueInstance]:
        """Every contract that has landed."""
        now = self.now
        return [self._true(c) for c in self.account.contracts.values() if c.created_at <= now]

    def _true(self, contract: Contract) -> TrueInstance:
        now = self.now
        return TrueInstance(
            cloud=self.name,
            ref=str(contract.ref),
            name=contract.label,
            status=contract.phases.at(now).actual or "null",
            gpu=contract.gpu,
            gpu_count=contract.size,
            created_at=contract.created_at,
            ended_at=contract.billing_ended_at,
            gpu_s=contract.meter.seconds("gpu", now),
            gpu_usd=contract.meter.usd("gpu", now),
            storage_usd=contract.meter.usd("storage", now),
        )

    def reprice(self, key: str, factor: Decimal) -> int:
        """Prices belong to machines, so every slice of the machine moves."""
        market = self.account.market
        chosen = market.machines if key == "*" else [p.machine for p in [market.find(int(key))] if p is not None]
        for machine in chosen:
            if machine.gpu_usd_h is not None:
                machine.gpu_usd_h *= factor
        return len(chosen)

    def withdraw(self, key: str) -> int:
        """Somebody else rents it ("*": everything)."""
        market = self.account.market
        chosen = list(market.slices()) if key == "*" else [p for p in [market.find(int(key))] if p is not None]
        return sum(market.take(p.machine, p.size, p.offer_id) for p in chosen)

    def disturb(self, ref: str, what: str) -> None:
        """See `DISTURBANCES`."""
        if what not in say.DISTURBANCES:
            raise KeyError(what)
        if what == "credit_gone":
            self.account.credit_usd = self.account.spent_usd() - Decimal("0.01")
            self.account.settle()
            return
        contract, now = self.account.contracts[int(ref)], self.now
        if what in OUTBID:
            self.account.stop(contract, OUTBID[what])
        elif what == "expire":
            self.account.stop(contract)
        elif what in say.DEARER:
            contract.reprice(now, say.DEARER[what])
        elif what == "outbid_over":
            self.account.start(contract)
        elif what == "vanish":
            self.account.destroy(contract)
            contract.gone_at = now
        elif what == "gpu_taken":
            self.account.market.take(contract.machine, contract.machine.free)
        else:
            self._contact(contract, lost=what == "offline")

    def _contact(self, contract: Contract, *, lost: bool) -> None:
        contract.offline = lost
        if lost:
            contract.meter.stop_all(self.now)
            return
        contract.meter.start("storage", self.now, contract.storage_usd_h)
        if contract.phases.at(self.now).ports:
            contract.meter.start("gpu", self.now, contract.gpu_usd_h)

    # ── the API ──────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[BaseRoute]:
        """Documented paths; the group names the rate limit and the generic faults that apply."""
        pages = Pages(self, lambda: self.account)
        table: list[tuple[str, str, str, Answer]] = [
            ("POST", "/api/v0/bundles/", "search", self._bundles),
            ("GET", "/api/v0/bundles/", "search", self._bundles),
            ("PUT", "/api/v0/search/asks/", "search", self._bundles),
            ("PUT", "/api/v0/asks/{ref:int}/", "create", self._create),
            ("GET", "/api/v0/instances/", "list", pages.deprecated),
            ("GET", "/api/v1/instances/", "list", pages.instances),
            ("GET", "/api/v0/instances/filters/", "user", pages.filters),
            ("GET", "/api/v0/instances/{ref:int}/", "get", self._get),
            ("PUT", "/api/v0/instances/{ref:int}/", "state", self._change),
            ("DELETE", "/api/v0/instances/{ref:int}/", "destroy", self._destroy),
            ("PUT", "/api/v0/instances/reboot/{ref:int}/", "state", self._reboot),
            ("PUT", "/api/v0/instances/recycle/{ref:int}/", "state", self._reboot),
            ("PUT", "/api/v0/instances/bid_price/{ref:int}/", "bid", self._bid),
            ("PUT", "/api/v0/instances/request_logs/{ref:int}/", "state", pages.request_logs),
            ("POST", "/api/v0/instances/{ref:int}/ssh/", "state", pages.attach_key),
            ("GET", "/api/v0/instances/{ref:int}/ssh/", "get", pages.instance_keys),
            ("GET", "/api/v0/ssh/", "user", pages.keys),
            ("POST", "/api/v0/ssh/", "user", pages.add_key),
            ("GET", "/api/v0/users/current", "user", pages.user),
            ("GET", "/api/v0/users/current/", "user", pages.user),
            ("GET", "/api/v0/charges/", "charges", pages.charges),
        ]
        routes: list[BaseRoute] = [
            Route(path, self._guarded(group, answer), methods=[method]) for method, path, group, answer in table
        ]
        routes.append(Route("/logs/{ref:int}", pages.log_text, methods=["GET"]))
        routes.append(Route("/api/v0/gpu_names/unique/", pages.gpu_names, methods=["GET"]))
        return routes

    def _guarded(self, group: str, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            raw = await request.body()
            try:
                body = json.loads(raw) if raw else {}
            except ValueError:
                return say.envelope(400, "invalid_request", "Invalid json body")
            call = self._note(group, request, body)
            refusal = self._refusal(group, request)
            if refusal is not None:
                if call is not None:
                    call.outcome = "refused"
                return refusal
            return await answer(request, body)

        return guarded

    def _note(self, group: str, request: Request, body: Any) -> CreateCall | None:
        if group != "create":
            return None
        label = body.get("label") if isinstance(body, dict) else None
        return self.engine.note_create(self.name, label, str(request.path_params["ref"]))

    def _refusal(self, group: str, request: Request) -> Response | None:
        if (params := self.fault(f"{group}_auth")) is not None:
            return say.not_authorised(str(params.get("form", "404")))
        given = request.headers.get("authorization")
        if given is None:
            return say.not_authorised("403")
        if given != f"Bearer {self.API_KEY}":
            return say.not_authorised()
        if (params := self.fault(f"{group}_429")) is not None:
            return say.too_often(str(params.get("form", "json")), say.THRESHOLDS_S[group], params.get("retry_after"))
        if self.fault(f"{group}_503") is not None:
            return say.unavailable()
        return self._too_soon(group)

    def _too_soon(self, group: str) -> Response | None:
        if not self.engine.timing.enforce_rate_limits:
            return None
        now = self.engine.clock.monotonic()
        if group == "search":
            return self._searched_too_often(now)
        last = self._last_call.get(group)
        threshold_s = say.THRESHOLDS_S[group]
        if last is not None and now - last < threshold_s:
            return say.too_often("json", threshold_s, max(1, round(threshold_s - (now - last))))
        self._last_call[group] = now
        return None

    def _searched_too_often(self, now: float) -> Response | None:
        """Searches are counted by the minute, every other endpoint by the pause since its last call."""
        self._searches = [at for at in self._searches if now - at < 60.0]
        if len(self._searches) >= say.SEARCHES_A_MINUTE:
            return say.too_often("json", say.THRESHOLDS_S["search"], max(1, round(60.0 - (now - self._searches[0]))))
        self._searches.append(now)
        return None

    async def _bundles(self, request: Request, body: dict[str, Any]) -> Response:
        if self.fault("search_quota") is not None:
            return say.search_quota(self.now)
        if self.fault("search_empty") is not None:
            return JSONResponse({"offers": []})
        if self.fault("search_garbage") is not None:
            return PlainTextResponse("<html>hello</html>")
        try:
            query = json.loads(request.query_params["q"]) if "q" in request.query_params else body.get("q", body)
            return JSONResponse({"offers": search(self.account.market, query, self.now)})
        except BadQuery as error:
            return say.envelope(400, "invalid_request", str(error))
        except (ValueError, TypeError, AttributeError):
            return say.envelope(400, "invalid_request", "Invalid json body")

    async def _create(self, request: Request, body: dict[str, Any]) -> Response:
        ask, call = int(request.path_params["ref"]), self.engine.creates[-1]
        call.outcome = "refused"
        for name, refusal in say.CREATE_REFUSALS.items():
            if self.fault(name) is not None:
                answer: Response = refusal(ask)
                return answer
        if self.fault("create_lost_request") is not None:
            return LostReply()
        part = self.account.market.find(ask)
        if part is None:
            return say.stale(ask)
        problem = self._problem(part, body)
        if problem is not None:
            return problem
        if (late := self.fault("create_lands_late")) is not None:
            contract = self.account.rent(part, body, self, float(late.get("after_s", 200)))
            call.outcome, call.ref = "pending", str(contract.ref)
            return LostReply()
        if self.fault("create_half_made") is not None:
            contract = self.account.half_make(part, body, self)
            call.outcome, call.ref = "committed", str(contract.ref)
            text = "Your bid is too low to start this instance."
            return JSONResponse({"success": False, "error": "bid_too_low", "msg": text, "new_contract": contract.ref})
        contract = self.account.rent(part, body, self)
        call.outcome, call.ref = "committed", str(contract.ref)
        return self._created(contract)

    def _created(self, contract: Contract) -> Response:
        if self.fault("create_lost_reply") is not None:
            return LostReply()
        if self.fault("create_503_after") is not None:
            return say.unavailable()
        if self.fault("create_garbage") is not None:
            return PlainTextResponse("OK")
        secret = f"sandbox-instance-key-{contract.ref}"
        return JSONResponse({"success": True, "new_contract": contract.ref, "instance_api_key": secret})

    def _problem(self, part: Slice, body: dict[str, Any]) -> Response | None:
        if not body.get("image"):
            return say.envelope(500, "server_error", "Something went wrong on the server")
        if float(body.get("disk") or 10) < 8 or float(body.get("disk") or 10) > part.machine.disk_gb:
            return say.envelope(400, "invalid_args", "error 400/3467: Invalid args: disk")
        if len(str(body.get("label") or "")) > 256 or len(str(body.get("onstart") or "")) > 4048:
            return say.envelope(400, "invalid_args", "error 400/3467: Invalid args: too long")
        price = body.get("price")
        if price is not None and not 0.001 <= float(price) <= 128:
            return say.envelope(400, "invalid_price", "error 400/3490: invalid_price")
        if self.account.left_usd() <= 0:
            return say.lacks_credit()
        return None

    async def _get(self, request: Request, body: dict[str, Any]) -> Response:
        contract = self.account.shown(int(request.path_params["ref"]))
        if contract is None or self.fault("get_null") is not None:
            return JSONResponse({"instances": None})
        return JSONResponse({"instances": contract.wire(self.now, self.account.port(contract))})

    async def _change(self, request: Request, body: dict[str, Any]) -> Response:
        ref = int(request.path_params["ref"])
        contract = self.account.existing(ref)
        if contract is None:
            return say.no_such_instance(ref)
        if "label" in body:
            if len(str(body["label"])) > LABEL_MAX:
                return say.envelope(400, "label_too_long", "Label too long.")
            contract.label = body["label"]
            return JSONResponse({"success": True})
        if body.get("state") == "stopped":
            self.account.stop(contract)
            return JSONResponse({"success": True})
        if body.get("state") != "running":
            return say.envelope(400, "invalid_args", "error 400/3467: Invalid args: state")
        if (queued := self.fault("start_queued")) is not None:
            self.account.queue_start(contract, queued.get("flips_s"))
        elif self.account.start(contract):
            return JSONResponse({"success": True})
        text = "Required resources are currently unavailable, state change queued."
        return JSONResponse({"success": False, "error": "resources_unavailable", "msg": text})

    async def _destroy(self, request: Request, body: dict[str, Any]) -> Response:
        ref = int(request.path_params["ref"])
        contract = self.account.existing(ref)
        if contract is None or contract.billing_ended_at is not None:
            return say.no_such_instance(ref)
        if self.fault("destroy_not_done") is None:
            self.account.destroy(contract)
        if self.fault("destroy_lost_reply") is not None:
            return LostReply()
        if self.fault("destroy_503_after") is not None:
            return say.unavailable()
        return JSONResponse({"success": True})

    async def _reboot(self, request: Request, body: dict[str, Any]) -> Response:
        ref = int(request.path_params["ref"])
        contract = self.account.existing(ref)
        if contract is None:
            return say.no_such_instance(ref)
        self.account.reboot(contract)
        return JSONResponse({"success": True})

    async def _bid(self, request: Request, body: dict[str, Any]) -> Response:
        ref = int(request.path_params["ref"])
        contract = self.account.existing(ref)
        if contract is None:
            return say.envelope(404, "no_such_instance", "Instance with that ID does not exist.")
        price = body.get("price")
        if price is None or float(price) < 0.001:
            return say.envelope(400, "invalid_args", "Please set a bid price >= 0.001.")
        contract.bid_usd_h = contract.gpu_usd_h = Decimal(str(price))
        if contract.meter.rate_usd_h("gpu", self.now):
            contract.meter.start("gpu", self.now, contract.gpu_usd_h)
        return JSONResponse({"success": True})
