"""Run as the first process of a machine: it boots, serves SSH, and leaves nothing behind when it ends.

Every process of the machine is below it, because those whose parent ends become its children. Its standard input is
the machine's power: a line `off` ends everything and keeps the disk. A closed pipe means that the sandbox is gone, so
the machine's folder is removed, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from providers.sandbox.nodes import openssh, ssh_server

PR_SET_CHILD_SUBREAPER = 36
#: How often processes that ended are collected, and how long one that was killed may take to end.
REAP_S, END_S = 0.5, 5.0
OFF = "off"


def main() -> None:
    """Read what to boot from the first line of standard input, and run until the power goes."""
    said = json.loads(sys.stdin.buffer.readline())
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.setpgid(0, 0)  # A Ctrl-C at the sandbox's terminal is the sandbox's.
    asyncio.run(_run(said))


async def _run(said: Mapping[str, Any]) -> None:
    booting, reaping = asyncio.create_task(_boot(said)), asyncio.create_task(_reap())
    _serving = await _serve(said)  # Kept, because nothing else refers to it.
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    order = (await orders.readline()).decode().strip()
    booting.cancel()
    reaping.cancel()
    end_descendants()
    if order != OFF:
        shutil.rmtree(said["root"], ignore_errors=True)
    os._exit(0)  # Open logins are cut, as they are when a machine loses its power.


async def _serve(said: Mapping[str, Any]) -> object:
    """Serve SSH on the port that the sandbox reserved: by OpenSSH's server where that is asked for."""
    listening = socket.socket(fileno=said["port_fd"])
    if said["openssh"]:
        return await openssh.serve(said, listening)
    return await ssh_server.serve(said, listening)


async def _boot(said: Mapping[str, Any]) -> None:
    """Run the commands of the boot one after the other; what one of them starts in the background runs on."""
    with Path(said["log"]).open("ab") as log:  # noqa: ASYNC230 # Nothing else runs here yet.
        for command in said["commands"]:
            process = await asyncio.create_subprocess_exec(
                "/bin/bash",
                "-c",
                command,
                env=said["variables"],
                cwd=said["home"],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            await process.wait()


async def _reap() -> None:
    """Collect the processes that were left to this one and have ended. Those of its own are collected by asyncio."""
    while True:
        await asyncio.sleep(REAP_S)
        mine = {pid for pid, (parent, state) in processes().items() if parent == os.getpid() and state == "Z"}
        await asyncio.sleep(REAP_S)
        # What asyncio waits for is gone by now.
        for pid in mine:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 # It waits for nothing.


def processes() -> dict[int, tuple[int, str]]:
    """Return the parent and the state of each process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            found[int(folder.name)] = (int(words[1]), words[0])
    return found


def descendants(of: int) -> set[int]:
    """Return every living process below one."""
    tree = processes()
    found, more = set[int](), {of}
    while more:
        more = {pid for pid, (parent, _) in tree.items() if parent in more} - found
        found |= more
    return {pid for pid in found if tree[pid][1] != "Z"}


def end_descendants() -> None:
    """Kill everything below this process, and what is started meanwhile, until nothing is left."""
    until_s = time.monotonic() + END_S
    while time.monotonic() < until_s and (left := descendants(os.getpid())):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # They end by themselves; there is nothing to wait on for grandchildren.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    main()
