"""Keep the API's process running for the reporter, and pass on to it what the service signed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bot.agent.job_process import own_program
from bot.wire.codec import to_json
from bot.wire.node_api import MOST_PORT, NodeIdentity


@dataclass
class ApiProcess:
    """The process that serves the API, once the service gave its key and certificate."""

    given: NodeIdentity | None = None
    #: The machine's own port, in place of the one that the service names.
    own_port: int | None = None
    #: Its port and the hash of its certificate, as it says itself; None while it does not serve.
    _served: Mapping[str, Any] | None = None
    _process: subprocess.Popen[str] | None = None

    def take(self, given: NodeIdentity | None) -> None:
        """Take over the key and the certificate of an exchange's answer.

        A new certificate goes to the process that runs, so no download ends. Only another port needs another process.
        """
        if given is None or not 0 < given.port <= MOST_PORT:
            return
        given = replace(given, port=self.own_port or given.port)
        before, self.given = self.given, given
        if before is None or before == given or self._process is None:
            return
        if before.port != given.port:
            self.stop()
            return
        self._served = None
        try:
            self._write(to_json(given))
        except (OSError, ValueError):
            self.stop()

    def claim(self) -> dict[str, Any]:
        """Return what a check-in says of the API; nothing while it does not serve."""
        served = self._served
        return {} if served is None else {"api": dict(served)}

    def pass_on(self, said: Mapping[str, Any]) -> None:
        """Start it where it does not run, and pass on a signed message and what the reporter knows."""
        if self.given is None:
            return
        if self._process is not None and self._process.poll() is not None:
            self.stop()
        try:
            if self._process is None:
                self._start(self.given)
            self._write(said)
        except (OSError, ValueError):
            self.stop()  # The next check-in starts another one.

    def stop(self) -> None:
        """End it; callers begin again with the next one."""
        self._served = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._process = None

    def _start(self, given: NodeIdentity) -> None:
        command = [sys.executable, *own_program(), "serve-api"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process = process
        self._write(to_json(given))
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _write(self, value: Mapping[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        """Learn that it serves, and that it does not any more."""
        with contextlib.suppress(OSError, ValueError):
            for line in process.stdout or ():
                if process is self._process:
                    self._served = json.loads(line)
        if process is self._process:
            self._served = None
