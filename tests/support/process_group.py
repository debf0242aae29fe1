"""A program that has imported the bot and forks one `serve` process per order, because importing takes seconds.

Each child is a process of its own that runs `bot.main.serve` on the settings of the environment it was given, so it
can be killed like any other. Orders and answers are lines of JSON on standard input and output. When the input ends,
so does everything that was forked.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

from bot.cli.access.settings import private_umask, settings
from bot.clock import TravelClock
from bot.main import serve
from tests.scenarios.kills.failpoints import install
from tests.scenarios.kills.power import flush_nothing
from tests.support.slow_names import slow_names


def main() -> None:
    """Serve orders until there are none any more."""
    if threading.active_count() != 1:
        raise RuntimeError("forking is safe only while there is one thread, and importing the bot started another")
    gc.freeze()
    alive: set[int] = set()
    _say({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "start":
            pid = os.fork()
            if pid == 0:
                _become(order)
            alive.add(pid)
            _say({"pid": pid})
        else:
            _, status = os.waitpid(order["pid"], 0)
            alive.discard(order["pid"])
            _say({"code": os.waitstatus_to_exitcode(status)})
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _become(order: dict[str, Any]) -> NoReturn:
    """Turn this child into the bot. `ahead_s` is how far its clock, like all clocks of the test, has travelled.

    `descriptors`, if there, is how many files it may have open, however it raises its own limit. With `disk_full` none
    of its files may grow until `resource.prlimit` allows it again; its log goes through a process that still may. With
    `slow_names` the name server of the names under `SLOW` never answers it. The file `dies_at` says where it dies.
    Without `flushes` it asks for no flush of its ledger. With `obeys_modes` the modes of files bind it as anybody.
    """
    code = 1
    try:
        if most := order["descriptors"]:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        out = os.open(order["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        if order["disk_full"]:
            with os.fdopen(out, "ab") as log:
                writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)  # It ends with this process.
            out = os.dup(writer.stdin.fileno())  # type: ignore[union-attr] # It is a pipe.
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        private_umask()
        if order["obeys_modes"]:
            obey_modes()
        if not order["flushes"]:
            flush_nothing()
        clock = TravelClock()
        clock.travel(order["ahead_s"])
        with slow_names() if order["slow_names"] else contextlib.nullcontext():
            asyncio.run(_serve(clock, order.get("dies_at", "")))
        code = 0
    except BaseException:  # noqa: BLE001 # Nothing may return into the parent's program.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def obey_modes() -> None:
    """Give up what lets root read and write any file, as the C library's `capset` does it."""
    library = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    #: Effective, permitted and inheritable capabilities, the lower 32 of each and then the upper.
    sets = (ctypes.c_uint32 * 6)()
    library.capget(header, sets)
    for place in range(3):
        sets[place] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
    if library.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


async def _serve(clock: TravelClock, dies_at: str) -> None:
    if dies_at:
        install(asyncio.get_running_loop(), Path(dies_at))
    await serve(settings(), clock)


if __name__ == "__main__":
    main()
