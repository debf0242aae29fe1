"""Act as a model server on a machine of the sandbox: the part of OpenAI's HTTP API that chat programs use.

    serve-stub [--port N] [--model NAME] [--tokens-per-s N]
    vllm serve NAME [--port N]

It answers on 127.0.0.1 with the words of the last message, one by one where `stream` is asked for, and writes
`serve.json` once it listens.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Answers for one model."""

    protocol_version = "HTTP/1.1"
    model = "sandbox/echo"
    pause_s = 0.02

    def do_GET(self) -> None:  # The name that http.server calls.
        if self.path == "/health":
            self._json(200, {"status": "ok"})
        elif self.path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": self.model, "object": "model", "owned_by": "sandbox"}]})
        else:
            self._json(404, {"error": {"message": "not found", "type": "invalid_request_error"}})

    def do_POST(self) -> None:
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            words = str(body["messages"][-1]["content"]).split() or ["…"]
        except (ValueError, KeyError, IndexError, TypeError):
            self._json(400, {"error": {"message": "messages is missing", "type": "invalid_request_error"}})
            return
        if self.path != "/v1/chat/completions":
            self._json(404, {"error": {"message": "not found", "type": "invalid_request_error"}})
        elif body.get("stream"):
            self._stream(words)
        else:
            message = {"role": "assistant", "content": " ".join(words)}
            usage = {"prompt_tokens": len(words), "completion_tokens": len(words), "total_tokens": 2 * len(words)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._json(200, self._answer("chat.completion") | {"choices": [choice], "usage": usage})

    def log_message(self, *said: Any) -> None:
        """Write one line for each call."""
        print(said[0] % said[1:], flush=True)

    def _answer(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-sandbox", "object": kind, "created": int(time.time()), "model": self.model}

    def _stream(self, words: list[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number, word in enumerate([*words, None]):
            delta = {} if word is None else {"content": word if number == 0 else f" {word}"}
            choice = {"index": 0, "delta": delta, "finish_reason": "stop" if word is None else None}
            self._event(json.dumps(self._answer("chat.completion.chunk") | {"choices": [choice]}))
            time.sleep(self.pause_s)
        self._event("[DONE]")
        self.close_connection = True

    def _event(self, text: str) -> None:
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main(arguments: list[str]) -> int:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser("serve-stub", description="Act as a model server.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default=Handler.model)
    parser.add_argument("--tokens-per-s", type=float, default=50)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    options, _others = parser.parse_known_args(arguments)
    model = options.words[1] if options.words[:1] == ["serve"] and options.words[1:] else options.model
    handler = type("Chosen", (Handler,), {"model": model, "pause_s": 1 / options.tokens_per_s})
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler)
    folder = Path(os.environ["GPU_SHOPPER_AGENT_FOLDER"]).parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "serve.json").write_text(json.dumps({"port": server.server_port, "model": model}))
    print(f"serving {model} on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
