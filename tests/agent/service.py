"""A small HTTP server in place of GPU Shopper and of a cloud, for tests of the agent alone."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agent.signing import INSTANCE, PUBLIC, signed

TOKEN = f"gpun_{INSTANCE.removeprefix('ins_')}_{'x' * 43}"


#: Stands for an answer that is not HTTP.
BROKEN = 0


@dataclass
class Call:
    """One call that arrived."""

    method: str
    path: str
    token: str
    agent: str
    body: dict[str, Any]


@dataclass
class Service:
    """What arrived, and what is answered: a status and a body for each call."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    answer: Callable[[Call], tuple[int, Any]] = lambda call: (200, checkin_answer(call.body.get("seq", 0)))
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def environment(self) -> dict[str, str]:
        """The variables of a machine that reports here."""
        return {
            "GPU_SHOPPER_CHECKIN_URL": f"{self.url}/agent/v1/checkin",
            "GPU_SHOPPER_CHECKIN_TOKEN": TOKEN,
            "GPU_SHOPPER_CHECKIN_KEY": base64.b64encode(PUBLIC).decode(),
        }

    def wait(self, wanted: Callable[[list[Call]], bool], timeout_s: float = 20.0) -> list[Call]:
        """Wait until the calls are as wanted; fails when they never are."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: wanted(self.calls), timeout_s), self.calls
            return list(self.calls)


def checkin_answer(seq: int, *, left_s: int | None = 3600, **more: Any) -> dict[str, Any]:
    """An answer with a signed end."""
    found = signed(n=seq, left_s=left_s)
    deadline = {"message": found.message, "signature": found.signature}
    return {"seq": seq, "asks": [], "next_in_s": 60, "token": "gpuc_made", "deadline": deadline} | more


@contextmanager
def service() -> Iterator[Service]:
    """Serve on a free port of 127.0.0.1."""
    here = Service()

    class Handler(BaseHTTPRequestHandler):
        def __getattr__(self, name: str) -> Callable[[], None]:
            """Every method of HTTP is answered alike."""
            if name.startswith("do_"):
                return self._any
            raise AttributeError(name)

        def _any(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            call = Call(self.command, self.path, token, self.headers.get("User-Agent", ""), json.loads(raw or b"{}"))
            with here.arrived:
                here.calls.append(call)
                here.arrived.notify_all()
            status, body = here.answer(call)
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            if status == BROKEN:
                self.wfile.write(b"this is no HTTP\r\n\r\n")
                return
            self.send_response(status)
            if status == 307:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Tests read `calls`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    here.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield here
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
