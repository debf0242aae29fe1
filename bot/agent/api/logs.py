"""Send the end of a log, and where asked what is added to it, as long as the caller stays."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bot.agent.api.commands import Commands
from bot.agent.api.problems import ApiRefusal
from bot.agent.machine import LOGS

MOST_LINES, MOST_BYTES, BLOCK = 10_000, 4 << 20, 1 << 16
#: How often a followed log is looked at.
LOOK_S = 0.25
MOST_FOLLOWED = 8


@dataclass
class Logs:
    """The logs of this machine; `folder` is the agent's. Lines are sent as they are: control characters too."""

    folder: Path
    commands: Commands
    starts: tuple[Path, ...] = LOGS
    followed: int = 0

    def path(self, source: str, command: str) -> Path:
        """Return the file of a source, or of a command's output. Raises ApiRefusal."""
        if command:
            return self.commands.place(command).log
        if source == "startup":
            return next((one for one in (self.folder / "startup.log", *self.starts) if one.is_file()), self.starts[0])
        if source == "serve":
            # One that the start-up began, else one that somebody started with its log there.
            places = [self.folder / "serve/serve.log", self.folder / "serve.log"]
            return next((one for one in places if one.is_file()), places[0])
        names = {"job": "job/job.log", "agent": "agent.log"}
        if source not in names:
            raise ApiRefusal(400, "source must be job, startup, agent or serve.")
        return self.folder / names[source]

    async def send(self, request: Request) -> Response:
        """`GET …/logs?source=job&tail=100&follow=true`, or `?command=ID`."""
        asked = request.query_params
        path = self.path(asked.get("source", "job"), asked.get("command", ""))
        tail, follow = asked.get("tail", "100"), asked.get("follow", "false")
        if not re.fullmatch(r"[0-9]{1,5}", tail, re.ASCII) or int(tail) > MOST_LINES:
            raise ApiRefusal(400, f"tail must be a number of lines up to {MOST_LINES}, such as tail=100.")
        if follow not in ("true", "false"):
            raise ApiRefusal(400, "follow must be true or false.")
        if follow == "true" and self.followed >= MOST_FOLLOWED:
            raise ApiRefusal(429, f"{MOST_FOLLOWED} callers follow logs already. End one first.", {"Retry-After": "10"})
        body = self._followed(path, int(tail)) if follow == "true" else _once(path, int(tail))
        return StreamingResponse(body, media_type="text/plain; charset=utf-8")

    async def _followed(self, path: Path, lines: int) -> AsyncIterator[bytes]:
        self.followed += 1
        file = -1
        try:
            while True:
                if file < 0 and (file := _open(path)) >= 0:
                    _to_tail(file, lines)
                while file >= 0 and (block := os.read(file, BLOCK)):
                    yield block
                if file >= 0 and _is_replaced(path, file):
                    os.close(file)
                    file, lines = -1, MOST_LINES  # What is new in a new file is all of it.
                    continue
                await asyncio.sleep(LOOK_S)
        finally:
            self.followed -= 1
            if file >= 0:
                os.close(file)


async def _once(path: Path, lines: int) -> AsyncIterator[bytes]:
    file = _open(path)
    if file < 0:
        return
    try:
        _to_tail(file, lines)
        left = MOST_BYTES
        while left and (block := os.read(file, min(BLOCK, left))):
            left -= len(block)
            yield block
    finally:
        os.close(file)


def _open(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return -1


def _to_tail(file: int, lines: int) -> None:
    """Set the place to read from to the start of the last lines, at most 4 MiB before the end."""
    at = os.fstat(file).st_size
    least, found = max(at - MOST_BYTES, 0), 0
    os.lseek(file, at, os.SEEK_SET)
    if not lines:
        return
    end = at
    while at > least:
        begin = max(at - BLOCK, least)
        block = os.pread(file, at - begin, begin)
        place = end - 1 - begin if block.endswith(b"\n") and at == end else len(block)  # Not the very last one.
        while (place := block.rfind(b"\n", 0, place)) >= 0:
            found += 1
            if found == lines:
                os.lseek(file, begin + place + 1, os.SEEK_SET)
                return
        at = begin
    os.lseek(file, least, os.SEEK_SET)


def _is_replaced(path: Path, file: int) -> bool:
    """Whether the name has another file now, or this one became shorter than what was read of it."""
    mine = os.fstat(file)
    if mine.st_size < os.lseek(file, 0, os.SEEK_CUR):
        return True
    try:
        now = path.lstat()
    except OSError:
        return False
    return (now.st_ino, now.st_dev) != (mine.st_ino, mine.st_dev)
