"""One ASGI app that serves every sandbox under its own prefix, and `/_sandbox` to steer them.

`/_sandbox` is for tests and demos: arm faults, travel in time, move the market, disturb an instance, read the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from email.utils import format_datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from providers.sandbox.engine import Engine, SandboxCloud, truth

TICK_S = 0.25
#: The origin of a page or a server of this machine.
HERE = re.compile(r"https?://(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?")


def build_app(clouds: Mapping[str, SandboxCloud], *, tick_s: float | None = TICK_S) -> Starlette:
    """Mount each cloud at `/<name>` and the controls at `/_sandbox`. All clouds must share one engine.

    While the app runs, the SSH ports are brought in line every `tick_s` real seconds (None: only on requests).
    """
    engines = {id(cloud.engine): cloud.engine for cloud in clouds.values()}
    if len(engines) != 1:
        raise ValueError("build_app needs at least one cloud, and all of them on one Engine")
    engine = next(iter(engines.values()))

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        ticker = asyncio.create_task(_keep_ticking(clouds, tick_s)) if tick_s is not None else None
        try:
            yield
        finally:
            if ticker is not None:
                ticker.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await ticker
            await engine.nodes.close()
            if engine.processes is not None:
                await engine.processes.close()
            await engine.ssh_ports.close_all()

    routes: list[BaseRoute] = [Mount("/_sandbox", routes=Controls(engine, clouds).routes())]
    for name, cloud in clouds.items():
        inner = Starlette(routes=cloud.routes())
        inner.router.redirect_slashes = False
        routes.append(Mount(f"/{name}", app=_Observed(cloud, inner)))
    return Starlette(routes=routes, lifespan=lifespan)


async def _keep_ticking(clouds: Mapping[str, SandboxCloud], tick_s: float) -> None:
    while True:
        for cloud in clouds.values():
            await cloud.tick()
        await asyncio.sleep(tick_s)


class _Observed:
    """Records each request to a cloud and brings its SSH ports in line before and after it is handled."""

    def __init__(self, cloud: SandboxCloud, app: ASGIApp) -> None:
        self._cloud = cloud
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._cloud.engine.processes is not None and (server := scope.get("server")):
            self._cloud.engine.processes.address = f"http://{server[0]}:{server[1]}"
        sent = scope.get("raw_path") or str(scope["path"]).encode()
        path = sent.decode("ascii", "replace").removeprefix(str(scope.get("root_path", "")))
        self._cloud.engine.note_call(self._cloud.name, scope["method"], path)
        await self._cloud.tick()
        shown = format_datetime(self._cloud.engine.clock.shown(), usegmt=True).encode()

        async def dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"date", shown)]}
            await send(message)

        # A client that hangs up before the whole body came waits for no answer, and it is no fault of the cloud.
        with contextlib.suppress(ClientDisconnect):
            await self._app(scope, receive, dated)
        await self._cloud.tick()


Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Controls:
    """The `/_sandbox` endpoints. Errors are 400 with `{"error": "<sentence>"}`."""

    def __init__(self, engine: Engine, clouds: Mapping[str, SandboxCloud]) -> None:
        self._engine = engine
        self._clouds = clouds

    def routes(self) -> list[BaseRoute]:
        """Paths relative to `/_sandbox`."""
        table: list[tuple[str, str, Handler]] = [
            ("/", "GET", self._overview),
            ("/faults", "POST", self._arm),
            ("/faults", "DELETE", self._disarm),
            ("/clock", "POST", self._travel),
            ("/truth", "GET", self._truth),
            ("/market", "POST", self._market),
            ("/disturb", "POST", self._disturb),
            ("/nodes", "POST", self._tell),
            ("/tick", "POST", self._tick),
            ("/reset", "POST", self._reset),
        ]
        return [Route(path, _explained(handler), methods=[method]) for path, method, handler in table]

    async def _overview(self, body: dict[str, Any]) -> dict[str, Any]:
        clouds = {
            name: {
                "faults": cloud.FAULTS.sentences,
                "create_faults": cloud.FAULTS.creates,
                "disturbances": dict(cloud.DISTURBANCES),
                "armed": [asdict(f) for f in self._engine.faults.armed(name)],
                "api_key": cloud.API_KEY,
            }
            for name, cloud in self._clouds.items()
        }
        return {"now": self._engine.clock.now().isoformat(), "clouds": clouds}

    async def _arm(self, body: dict[str, Any]) -> dict[str, Any]:
        times = body.get("times", 1)
        self._engine.faults.arm(
            str(body["cloud"]),
            str(body["name"]),
            None if times is None else int(times),
            skip=int(body.get("skip", 0)),
            **dict(body.get("params", {})),
        )
        return {"armed": True}

    async def _disarm(self, body: dict[str, Any]) -> dict[str, Any]:
        self._engine.faults.disarm(body.get("cloud"))
        return {"armed": False}

    async def _travel(self, body: dict[str, Any]) -> dict[str, Any]:
        self._engine.clock.travel(float(body["advance_s"]))
        await self._tick_all()
        return {"now": self._engine.clock.now().isoformat()}

    async def _truth(self, body: dict[str, Any]) -> dict[str, Any]:
        return truth(self._engine, self._clouds.values())

    async def _market(self, body: dict[str, Any]) -> dict[str, Any]:
        cloud = self._clouds[str(body["cloud"])]
        key = str(body.get("key", "*"))
        if body.get("action") == "withdraw":
            return {"changed": cloud.withdraw(key)}
        if body.get("action") == "reprice":
            return {"changed": cloud.reprice(key, Decimal(str(body["factor"])))}
        raise ValueError('action is "withdraw" or "reprice" (with "factor", such as 1.2)')

    async def _disturb(self, body: dict[str, Any]) -> dict[str, Any]:
        self._clouds[str(body["cloud"])].disturb(str(body["ref"]), str(body["what"]))
        await self._tick_all()
        return {"done": True}

    async def _tell(self, body: dict[str, Any]) -> dict[str, Any]:
        node = self._engine.nodes.configure(f"{body['cloud']}/{body['ref']}", **dict(body["changes"]))
        return {"asks": node.asks, "seq": node.seq, "status": node.status}

    async def _tick(self, body: dict[str, Any]) -> dict[str, Any]:
        await self._tick_all()
        return {"answering": sorted(self._engine.ssh_ports.answering)}

    async def _reset(self, body: dict[str, Any]) -> dict[str, Any]:
        self._engine.faults.disarm()
        self._engine.creates.clear()
        self._engine.calls.clear()
        for cloud in self._clouds.values():
            cloud.reset()
        await self._tick_all()
        await self._engine.ssh_ports.close_all()
        return {"reset": True}

    async def _tick_all(self) -> None:
        for cloud in self._clouds.values():
            await cloud.tick()


def _from_here(host: str | None, origin: str | None) -> bool:
    """Whether a request names this machine, and does not come from a web page of another one.

    A page on the web can send requests to 127.0.0.1, and a name of its own can lead there.
    """
    named = [f"http://{host or ''}", *([origin] if origin is not None else [])]
    return all(HERE.fullmatch(one.lower()) for one in named)


def _explained(handler: Handler) -> Callable[[Request], Awaitable[JSONResponse]]:
    """A route that hands over the fields of the query and of the body, and says in a sentence what is wrong."""

    async def explained(request: Request) -> JSONResponse:
        if not _from_here(request.headers.get("host"), request.headers.get("origin")):
            return JSONResponse({"error": "The controls answer only programs and pages of this machine."}, 403)
        try:
            text = await request.body()
            body = json.loads(text) if text else {}
            if not isinstance(body, dict):
                raise TypeError("the body must be a JSON object")
            return JSONResponse(await handler({**request.query_params, **body}))
        except KeyError as error:
            return JSONResponse({"error": f"missing or unknown: {error.args[0]}"}, 400)
        except InvalidOperation:
            return JSONResponse({"error": "not a number; a factor looks like 1.2"}, 400)
        except (ValueError, TypeError) as error:
            return JSONResponse({"error": str(error)}, 400)

    return explained
