"""Guard the practice page (loopback only, own origin only, own resources only), and serve its static files."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

STATIC: Final = Path(__file__).parent / "static"
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
POLICY: Final = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class LoopbackOnly:
    """Refuse what a foreign web page could send to this machine, and add the security headers.

    A foreign Host means DNS rebinding; a foreign Origin means a cross-site request or WebSocket.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on or answer 403."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        refusal = _refusal(Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "http":
            await PlainTextResponse(refusal, 403)(scope, receive, _with_headers(send))
        else:
            await WebSocketClose(1008, refusal)(scope, receive, send)


def _refusal(headers: Headers) -> str | None:
    host = headers.get("host", "")
    if urlsplit(f"//{host}").hostname not in LOOPBACK:
        return "This practice workspace answers on loopback only: open it as http://127.0.0.1:PORT/"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return "This practice workspace answers its own page only: the request came from another origin"
    return None


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return wrapped


def static_files() -> StaticFiles:
    """Serve the page's own files; `/` is index.html."""
    return StaticFiles(directory=STATIC, html=True)
