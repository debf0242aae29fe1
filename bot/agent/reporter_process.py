"""Run the reporter as a process of its own, start it again when it dies or hangs, and read what it writes.

So nothing that goes wrong in it (a library, a driver that hangs, no memory) keeps the machine alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

#: The pause before a reporter that died is started again, doubled with each death up to a minute.
FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 60.0
#: It writes a line at each attempt to report. After so long without one it hangs, and is ended.
HANGS_S = 300.0
#: The most bytes of a line.
LINE_BYTES = 1 << 16


@dataclass
class ReporterProcess:
    """The reporter and its pipes. `start_with` gives the first line of its standard input."""

    command: Sequence[str]
    start_with: Callable[[], dict[str, Any]]
    clock: Callable[[], float]
    log: Callable[[str], None]
    #: A process that runs already, to take over in place of the first one.
    begun: subprocess.Popen[bytes] | None = None
    deaths: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector, repr=False)
    _start_at_s: float = 0.0
    _alive_at_s: float = 0.0
    _buffer: bytes = b""

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid

    def pass_on(self, number: int) -> None:
        """Send it a signal, where it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def keep_running(self) -> None:
        """Start it where it does not run and its pause has passed; end it where it hangs."""
        now_s = self.clock()
        if self._process is not None and now_s - self._alive_at_s > HANGS_S:
            self._end(f"wrote nothing for {HANGS_S:.0f} s")
        if self._process is None and now_s >= self._start_at_s:
            self._start(now_s)

    def read(self, wait_s: float) -> Iterator[dict[str, Any]]:
        """Wait so long at most for something, then yield the objects of the whole lines that came."""
        if not self._selector.select(wait_s) or self._process is None or self._process.stdout is None:
            return
        chunk = os.read(self._process.stdout.fileno(), LINE_BYTES)
        if not chunk:
            self._end("ended")
            return
        self._alive_at_s = self.clock()
        *lines, rest = (self._buffer + chunk).split(b"\n")
        self._buffer = rest[-LINE_BYTES:]
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict):
                yield said

    def stop(self) -> None:
        """End it, and do not start it again."""
        self._start_at_s = float("inf")
        if self._process is not None:
            self._end("is stopped")
        self._start_at_s = float("inf")
        self._selector.close()

    def _start(self, now_s: float) -> None:
        process, self.begun = self.begun, None
        try:
            process = process or subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            self.log(f"The reporter can't be started: {error}.")
            self._pause(now_s)
            return
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        try:
            process.stdin.write(json.dumps(self.start_with()).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            pass  # It died at once, and its closed pipe says so.
        self._selector.register(process.stdout, selectors.EVENT_READ)
        self._process, self._buffer, self._alive_at_s = process, b"", now_s

    def _end(self, why: str) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return
        self._selector.unregister(process.stdout)
        process.kill()
        process.stdout.close()
        with contextlib.suppress(OSError):  # Its first line may still be on its way.
            process.stdin.close()
        self.log(f"The reporter {why} ({process.wait()}); it is started again.")
        self._process = None
        self._pause(self.clock())

    def _pause(self, now_s: float) -> None:
        self._start_at_s = now_s + min(FIRST_PAUSE_S * 2**self.deaths, LAST_PAUSE_S)
        self.deaths = min(self.deaths + 1, 16)
