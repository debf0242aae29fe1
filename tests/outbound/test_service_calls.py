"""The two GET requests to addresses of the operator's own."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from bot.outbound.service_calls import send_heartbeat, writable_replicas
from tests.support.serving import serving

NOWHERE = "http://127.0.0.1:9"


async def _ready(request: Request) -> Response:
    """Replicas that can write, that cannot, that serve ends only, and something else at that address."""
    kind = request.path_params["kind"]
    if kind == "other":
        return PlainTextResponse("hello")
    if kind == "list":
        return JSONResponse([1])
    able = kind == "able"
    return JSONResponse({"status": "ok", "checks": {"ledger": True, "writable": able}}, 200 if able else 503)


async def _beat(request: Request) -> Response:
    return Response(status_code=int(request.path_params["status"]))


APP = Starlette(routes=[Route("/{kind}/readyz", _ready), Route("/beat/{status}", _beat)])


async def test_only_a_replica_that_says_so_can_write() -> None:
    async with serving(APP) as url:
        assert await writable_replicas([f"{url}/able", f"{url}/able/", f"{url}/unable"]) == 2
        assert await writable_replicas([f"{url}/other", f"{url}/list", f"{url}/missing/deep", NOWHERE, "http://["]) == 0


async def test_a_heartbeat_counts_when_the_monitor_takes_it() -> None:
    async with serving(APP) as url:
        assert await send_heartbeat(f"{url}/beat/200")
        assert not await send_heartbeat(f"{url}/beat/503")
    assert not await send_heartbeat(f"{NOWHERE}/x")
