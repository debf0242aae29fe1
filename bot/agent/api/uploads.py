"""Take files into the workspace: in parts that survive a dropped connection, and whole only with the right SHA-256."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from bot.agent.api.bodies import chunks
from bot.agent.api.problems import ApiRefusal
from bot.agent.api.room import ComingUpload, UploadRoom
from bot.agent.api.workspace import PARTS, AgentWorkspace, names_of

BLOCK = 1 << 20
_COLLECTS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HASH = re.compile(r"[0-9a-f]{64}")


def _number(request: Request, name: str, otherwise: str) -> int:
    text = request.query_params.get(name, otherwise)
    if not re.fullmatch(r"[0-9]{1,15}", text, re.ASCII):
        raise ApiRefusal(400, f"{name} must be a number of bytes, such as {name}=1048576.")
    return int(text)


async def upload(request: Request, workspace: AgentWorkspace, room: UploadRoom) -> Response:
    """`POST …/files/upload?path=&size=&sha256=&offset=`: append the body to what came before."""
    path, wanted = request.query_params.get("path", ""), request.query_params.get("sha256", "").lower()
    names_of(path)
    size, offset = _number(request, "size", ""), _number(request, "offset", "0")
    if not _HASH.fullmatch(wanted):
        raise ApiRefusal(400, "sha256 must be the SHA-256 of the whole file, 64 hexadecimal digits.")
    name = hashlib.sha256(f"{path}\0{size}\0{wanted}".encode()).hexdigest()
    with _part(workspace, name) as part:
        at = os.lseek(part.file, 0, os.SEEK_END)
        async with room.reserved(size - at) as coming:
            if offset != at:
                raise ApiRefusal(409, f"Send the file from byte {at} on: offset={at}.", offset=at)
            try:
                at = await _append(request, part.file, at, size, coming)
            except ClientDisconnect:
                raise ApiRefusal(400, "The connection ended before the body did.") from None
            except OSError as error:
                raise ApiRefusal(507, f"The disk does not take the file: {error.strerror}. Free some space.") from None
        if at < size:
            return JSONResponse({"path": path, "offset": at}, 202)
        if await asyncio.to_thread(sha256_of, part.file) != wanted:
            os.unlink(part.name, dir_fd=part.folder)
            raise ApiRefusal(422, "The bytes that came do not have this SHA-256. Send the file again, with offset=0.")
        await asyncio.to_thread(os.fsync, part.file)
        await asyncio.to_thread(workspace.move_into_place, part.folder, part.name, path)
    return JSONResponse({"path": path, "size": size, "sha256": wanted})


@dataclass(frozen=True)
class UploadPart:
    """What came of an upload: its name in a folder, and descriptors of both."""

    folder: int
    name: str
    file: int


@contextmanager
def _part(workspace: AgentWorkspace, name: str) -> Iterator[UploadPart]:
    """Hold the file that collects an upload. Raises ApiRefusal (409) while another call writes to it."""
    with ExitStack() as opened:
        try:
            folder = opened.enter_context(workspace.folder([PARTS], make=True))
            file = os.open(name, _COLLECTS, 0o644, dir_fd=folder)
        except OSError as error:
            raise ApiRefusal(409, f"{PARTS} in the workspace can't be used: {error.strerror}. Delete it.") from None
        opened.callback(os.close, file)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise ApiRefusal(409, f"{PARTS}/{name} was not made by an upload. Delete it.")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ApiRefusal(409, "Another call uploads this file now. Wait until it ended.") from None
        if os.fstat(file).st_nlink == 0 or not _has_name(folder, name, found):
            raise ApiRefusal(409, "Another call just ended this upload. Send it again.", offset=0)
        yield UploadPart(folder, name, file)


def _has_name(folder: int, name: str, found: os.stat_result) -> bool:
    try:
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (now.st_ino, now.st_dev) == (found.st_ino, found.st_dev)


async def _append(request: Request, file: int, at: int, size: int, coming: ComingUpload) -> int:
    """Write the body to the end of the file, a block at a time, and return the new end."""
    waiting = bytearray()
    try:
        async for chunk in chunks(request):
            if at + len(waiting) + len(chunk) > size:
                raise ApiRefusal(400, f"The body goes beyond the {size} bytes that size names.")
            waiting += chunk
            if len(waiting) >= BLOCK:
                at += await asyncio.to_thread(_write, file, bytes(waiting))
                waiting.clear()
                coming.left = size - at
    finally:
        at += _write(file, bytes(waiting))
    return at


def _write(file: int, block: bytes) -> int:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(file, rest) :]
    return len(block)


def sha256_of(file: int) -> str:
    """Return the SHA-256 of an open file, in hexadecimal digits."""
    made, at = hashlib.sha256(), 0
    while block := os.pread(file, BLOCK, at):
        made.update(block)
        at += len(block)
    return made.hexdigest()
