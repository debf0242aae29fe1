"""Start the machine's model server, and ask it for one chat completion until it answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.agent.every_gpu import look
from bot.agent.job_process import CommandFolder, CommandState, write_json
from bot.wire.startup_plan import PlannedServer

#: The port that model servers use where nobody says another one.
PORT = 8000
#: The file that tells the chat proxy the port.
SERVE = "serve.json"
#: How often it is asked, and how long one answer may take: the first one compiles code for the GPU.
ASK_EVERY_S, ANSWER_S = 2.0, 300.0
ANSWER_BYTES = 1 << 20
#: What `timeout` answers for a command that took too long.
TOO_LONG = 124
TAIL_BYTES, TAIL_LINES = 1 << 14, 30


@dataclass
class ModelServer:
    """The server of one plan. `folder` is where its log and its state lie, in `serve`."""

    folder: Path
    name: str
    server: PlannedServer
    environment: Mapping[str, str]
    say: Callable[[str], None]
    clock_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @property
    def place(self) -> CommandFolder:
        """Where its state and its log are."""
        return CommandFolder(self.folder / "serve", "serve.log")

    def start_and_ask(self, limit_s: float) -> int:
        """Start it unless it runs, and wait for its first answer. Return an exit code; nothing is ended."""
        until_s = self.clock_s() + limit_s
        try:
            port = self._start()
        except (OSError, subprocess.TimeoutExpired) as error:
            self.say(f"The model server can't be started: {error}")
            return 127
        while True:
            state = self.place.read()
            if state is None or not state.is_running:
                return self._ended(state)
            left_s = until_s - self.clock_s()
            if left_s <= 0:
                self.say(f"It answered no chat completion within {limit_s / 60:.0f} minutes. It keeps running.")
                self._say_tail()
                return TOO_LONG
            refused = self._ask(port, min(left_s, ANSWER_S))
            if refused is not None:
                return self._answered(refused)
            self.sleep(ASK_EVERY_S)

    def _answered(self, refused: str) -> int:
        if not refused:
            self.say(f"{self.server.model} answered a chat completion.")
            return 0
        self.say(f"The model server refuses a chat completion: {refused}")
        self._say_tail()
        return 1

    def _ended(self, state: CommandState | None) -> int:
        code = state.exit_code if state is not None and state.exit_code is not None else 1
        self.say(f"The model server ended with exit code {code}.")
        self._say_tail()
        return code if 0 < code < 256 else 1

    def _start(self) -> int:
        known = self.place.read()
        if known is not None and known.is_running:
            return _port_in(self.folder / SERVE)
        port = _free_port()
        gpus = len(look().gpus)
        words = {"{port}": str(port), "{gpus}": str(1 << max(gpus.bit_length() - 1, 0))}
        write_json(self.folder / SERVE, {"port": port, "model": self.server.model})
        argv = [words.get(one, one) for one in self.server.argv]
        self.place.start(self.name, argv, self.folder, self.environment)
        return port

    def _ask(self, port: int, timeout_s: float) -> str | None:
        """Ask once. Return "" for an answer, the reason of a refusal, and None where it may answer later."""
        # The server may have written another port since.
        connection = http.client.HTTPConnection("127.0.0.1", _port_in(self.folder / SERVE, port), timeout=timeout_s)
        question = {"model": self.server.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
        headers = {"Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(question), headers)
            reply = connection.getresponse()
            body = reply.read(ANSWER_BYTES).decode(errors="replace")
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        if 400 <= reply.status < 500 and reply.status != 429:
            return f"{reply.status} {body[:1000]}"
        return "" if reply.status == 200 and _has_choices(body) else None

    def _say_tail(self) -> None:
        with contextlib.suppress(OSError), self.place.log.open("rb") as log:
            log.seek(max(self.place.log.stat().st_size - TAIL_BYTES, 0))
            lines = log.read(TAIL_BYTES).decode(errors="replace").splitlines()
            self.say("\n".join(["The end of its log:", *lines[-TAIL_LINES:]]))


def _has_choices(body: str) -> bool:
    try:
        said: Any = json.loads(body)
        return bool(said["choices"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _port_in(file: Path, otherwise: int = PORT) -> int:
    try:
        port = json.loads(file.read_text(encoding="utf-8"))["port"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return otherwise
    return port if isinstance(port, int) and 0 < port < 65536 else otherwise


def _free_port() -> int:
    """Return the usual port, or any other where a program of the machine listens there."""
    for port in (PORT, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as free:
            found: int = free.getsockname()[1]
            return found
    return PORT
