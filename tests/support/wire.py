"""The same HTTP to the same applications, and the same logins, without a socket: for what is about something else.

What a socket adds to each call is its time, and a lost reply; the second is kept. The contract of the adapters, the
processes and `--all` use sockets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from unittest import mock

import httpx
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message

from bot.outbound import ssh_login
from bot.outbound.ssh_login import Followed, Ran, SshLogin
from bot.outbound.ssh_probe import host_key, ssh_banner
from bot.services.runtime.ports import Reached
from ledger.kernel.login_problem import LoginProblem
from providers import http
from providers.http import CloudHttp
from providers.sandbox.machines import Flaw
from providers.sandbox.ssh import SshPorts
from tests.support.serving import serving

CLOUDS_URL = "http://clouds.test"
NODES_URL = "http://bot.test"
_numbers = count()


@dataclass
class RealReach:
    """The SSH prober as production uses it. `keys`: it exchanges keys and logs in too, which takes 10 and 50 ms.

    Without `keys` the machine at a port answers directly: it lets in the same keys and prints the same.
    """

    ports: SshPorts
    keys: bool = False

    async def probe(self, host: str, port: int) -> Reached:
        return Reached(*await ssh_banner(host, port, 2.0))

    async def host_key(self, host: str, port: int, kind: str | None = None) -> str | None:
        return await host_key(host, port, 5.0, kind) if self.keys else None

    async def run(self, login: SshLogin, command: str, *, stdin: str = "", timeout_s: float) -> Ran:
        if self.keys:
            return await ssh_login.run(login, command, stdin=stdin, timeout_s=timeout_s)
        machine = self.ports.machine_at(login.port)
        if machine is None:
            return Ran(problem=LoginProblem.UNREACHABLE)
        if Flaw.NEW_HOST_KEY in machine.flaws:
            return Ran(problem=LoginProblem.WRONG_HOST_KEY)
        public = login.key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        if not machine.lets_in(login.user, public):
            return Ran(problem=LoginProblem.REFUSED)
        status, text = machine.run(command, stdin)
        return Ran(text, status)

    async def follow(self, login: SshLogin, command: str, *, timeout_s: float) -> Followed | LoginProblem:
        return await ssh_login.follow(login, command, timeout_s=timeout_s)


class Wire(httpx.AsyncBaseTransport):
    """Calls an application. `is_dark` says of a path whether it cannot be reached now."""

    #: Whether `reachable` serves over sockets instead: set once, by the run's options.
    replaced_by_sockets = False

    def __init__(self, app: ASGIApp, is_dark: Callable[[str], bool] = lambda _: False) -> None:
        self._app = app
        self._is_dark = is_dark

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One exchange. `ConnectTimeout` in the dark, `RemoteProtocolError` for a reply that ends too early."""
        path = request.url.path
        if self._is_dark(path):
            raise httpx.ConnectTimeout("nothing answers", request=request)
        body = await request.aread()
        sent, parts = False, []
        status, headers, is_over = 0, [], False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, headers, is_over
            if message["type"] == "http.response.start":
                status, headers = message["status"], message.get("headers", [])
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))
                is_over = not message.get("more_body", False)

        await self._app(_scope(request, path), receive, send)
        if not is_over:
            raise httpx.RemoteProtocolError("the reply ended too early", request=request)
        return httpx.Response(status, headers=headers, content=b"".join(parts), request=request)


def _scope(request: httpx.Request, path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, 80),
        "client": ("127.0.0.1", 50_000),
        "root_path": "",
    }


@contextmanager
def wired(wire: Wire, url: str = CLOUDS_URL) -> Iterator[None]:
    """Every adapter for this address that is made meanwhile talks over this wire, and others as before."""
    assert http.CloudHttp is CloudHttp
    before = CloudHttp._new_client

    def new_client(self: Any) -> httpx.AsyncClient:
        if not self._base_url.startswith(f"{url}/"):
            return before(self)
        return httpx.AsyncClient(
            base_url=self._base_url, headers=self._headers, timeout=self._timeout_s, transport=wire, trust_env=False
        )

    with mock.patch.object(CloudHttp, "_new_client", new_client):
        yield


@asynccontextmanager
async def reachable(app: Starlette) -> AsyncIterator[str]:
    """The address at which adapters that are made meanwhile reach `app`: over a wire, or over sockets with `--all`."""
    if Wire.replaced_by_sockets:
        async with serving(app) as url:
            yield url
        return
    url = f"http://clouds-{next(_numbers)}.test"
    async with app.router.lifespan_context(app):
        with wired(Wire(app), url):
            yield url
