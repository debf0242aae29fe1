"""The wire of the month: the same HTTP to the same applications, without a socket in between.

A month is half a million calls. What a socket adds to each is its time, and a lost reply; the second is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import httpx
from starlette.types import ASGIApp, Message

from providers import http
from providers.http import CloudHttp

CLOUDS_URL = "http://clouds.test"
NODES_URL = "http://bot.test"


class Wire(httpx.AsyncBaseTransport):
    """Calls an application. `is_dark` says of a path whether it cannot be reached now."""

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
def wired(wire: Wire) -> Iterator[None]:
    """Every adapter that is made meanwhile talks over this wire."""

    def new_client(self: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self._base_url, headers=self._headers, timeout=self._timeout_s, transport=wire, trust_env=False
        )

    assert http.CloudHttp is CloudHttp
    with mock.patch.object(CloudHttp, "_new_client", new_client):
        yield
