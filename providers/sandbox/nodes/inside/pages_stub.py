"""Act as Jupyter or TensorBoard on a machine of the sandbox: one page, behind the token of `JUPYTER_TOKEN` if any.

    jupyter lab --ip=127.0.0.1 --port=8888
    tensorboard --host=127.0.0.1 --port=6006

What a request or a command line holds is never run.
"""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class PageHandler(BaseHTTPRequestHandler):
    """Answers every path with one page."""

    def do_GET(self) -> None:  # The name that http.server calls.
        wanted = os.environ.get("JUPYTER_TOKEN", "")
        given = parse_qs(urlsplit(self.path).query).get("token", [""])[0]
        body = b"a page of the sandbox" if given == wanted or not wanted else b"403: this needs the token"
        self.send_response(200 if given == wanted or not wanted else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # The name of http.server.
        """Log nothing: an address has the token."""


def main() -> None:
    """Listen on the port that the command line names, on 127.0.0.1 alone."""
    port = next(int(word.partition("=")[2]) for word in sys.argv if word.startswith("--port="))
    ThreadingHTTPServer(("127.0.0.1", port), PageHandler).serve_forever()


if __name__ == "__main__":
    main()
