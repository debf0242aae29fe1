"""Processes of the bot that tests start, stop and kill."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

PROGRAM = str(Path(sys.executable).parent / "gpu-shopper")
START_S = 90.0
END_S = 40.0
LOOK_S = 0.01
SERVING = re.compile(r"serving on 127\.0\.0\.1:(\d+)")


class Process(Protocol):
    """One process of the bot."""

    @property
    def pid(self) -> int:
        """Its number."""

    def finish(self) -> int:
        """Wait for its end, without a limit; its exit code, negative for a signal."""


@dataclass(frozen=True, slots=True)
class _Forked:
    pid: int
    nursery: Nursery

    def finish(self) -> int:
        return int(self.nursery.order(do="wait", pid=self.pid)["code"])


@dataclass(frozen=True, slots=True)
class _Started:
    """The installed program, started as a shell does it."""

    pid: int
    process: subprocess.Popen[bytes]

    def finish(self) -> int:
        return self.process.wait()


class Nursery:
    """The other end of `tests.support.process_group`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def order(self, **order: Any) -> dict[str, Any]:
        """One order and its answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the nursery has no pipes")
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line that it says."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError("the nursery ended; what it said is above")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def nursery(before: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Iterator[Nursery]:
    """Start the program that forks processes, and stop it with everything that it forked.

    `before` are the words that start it as another program's child; `environment` is added to this process's.
    """
    pipe = subprocess.PIPE
    command = [*before, sys.executable, "-m", "tests.support.process_group"]
    env = {**os.environ, **(environment or {})}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env) as process:
        opened = Nursery(process)
        opened.answer()
        yield opened
        if process.stdin is not None:
            process.stdin.close()
        process.wait(END_S)


class Served:
    """A `serve` process and what it said so far."""

    def __init__(self, process: Process, log: Path, since: int) -> None:
        self._process = process
        self._log = log
        self._since = since
        self.port = 0

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def said(self) -> str:
        """What it wrote to its log."""
        return self._log.read_bytes()[self._since :].decode() if self._log.exists() else ""

    async def ready(self) -> None:
        """Return when it takes requests. TimeoutError with its log when it never does."""
        self.port = int((await self.says(SERVING.pattern))[1])

    async def says(self, pattern: str) -> re.Match[str]:
        """Wait until its log matches. TimeoutError with its log when it never does, or ends before."""
        try:
            async with asyncio.timeout(START_S):
                while (found := re.search(pattern, self.said())) is None:
                    if not self.runs:
                        raise TimeoutError
                    await asyncio.sleep(LOOK_S)  # There is nothing to wait on in a process that is not ours.
                return found
        except TimeoutError:
            raise TimeoutError(f"it never said {pattern!r}, but:\n{self.said()}") from None

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self._state() not in ("", "Z")

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it, so that it neither works nor ends."""
        return self._state() == "T"

    def _state(self) -> str:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return ""

    def disk_has_room(self) -> None:
        """Let its files grow again."""
        unlimited = resource.RLIM_INFINITY
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))

    def signal(self, what: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self._process.pid, what)

    async def finished(self) -> int:
        """Wait until it has ended; its exit code, negative for a signal. The test's own servers go on meanwhile."""
        async with asyncio.timeout(END_S):
            return await asyncio.to_thread(self._process.finish)

    async def kill(self) -> None:
        """`kill -9`, and wait until it is dead."""
        self.signal(signal.SIGKILL)
        if (code := await self.finished()) != -signal.SIGKILL:
            raise AssertionError(f"it ended by itself with {code} before it was killed:\n{self.said()}")


def fork(
    parent: Nursery,
    environment: Mapping[str, str],
    log: Path,
    ahead_s: float,
    descriptors: int | None = None,
    *,
    slow_names: bool = False,
    disk_full: bool = False,
    obeys_modes: bool = False,
    dies_at: Path | None = None,
    flushes: bool = True,
) -> Served:
    """A process out of the nursery, with at most `descriptors` files open; `disk_full`: none of its files may grow.

    With `obeys_modes` the modes of files bind it, also when root runs the tests.
    With `slow_names` the name server of some names never answers it. The file `dies_at` says where it dies. Without
    `flushes` it asks for no flush of its ledger.
    """
    since = log.stat().st_size if log.exists() else 0
    answer = parent.order(
        do="start",
        environment=dict(environment),
        folder=str(log.parent),
        log=str(log),
        ahead_s=ahead_s,
        descriptors=descriptors,
        slow_names=slow_names,
        disk_full=disk_full,
        obeys_modes=obeys_modes,
        dies_at=str(dies_at or ""),
        flushes=flushes,
    )
    return Served(_Forked(answer["pid"], parent), log, since)


def launch(environment: Mapping[str, str], log: Path) -> Served:
    """The installed program `gpu-shopper serve`, with the machine's own clock."""
    since = log.stat().st_size if log.exists() else 0
    with log.open("ab") as out:
        process = subprocess.Popen(
            [PROGRAM, "serve"],
            env=dict(environment),
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    return Served(_Started(process.pid, process), log, since)
