"""Send files of the workspace: whole, from a byte on after a dropped connection, or only their SHA-256."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from io import FileIO

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from bot.agent.api.problems import ApiRefusal
from bot.agent.api.uploads import sha256_of
from bot.agent.api.workspace import AgentWorkspace

BLOCK = 1 << 18
_RANGE = re.compile(r"bytes=([0-9]{0,15})-([0-9]{0,15})", re.ASCII)


async def download(request: Request, workspace: AgentWorkspace) -> Response:
    """`GET …/files/download/{path}`, with Range and If-Range; `?checksum=true` answers with the SHA-256 alone."""
    path = request.path_params["path"]
    file, found = workspace.open(path)
    tag = f'"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"'
    try:
        if request.query_params.get("checksum") == "true":
            digest = await asyncio.to_thread(sha256_of, file)
            os.close(file)
            return JSONResponse({"path": path, "size": found.st_size, "sha256": digest, "etag": tag})
        is_same = request.headers.get("if-range", tag) == tag
        begin, end = _range(request.headers.get("range", "") if is_same else "", found.st_size)
    except BaseException:
        os.close(file)
        raise
    headers = {"ETag": tag, "Accept-Ranges": "bytes", "Content-Length": str(end - begin)}
    is_part = end - begin != found.st_size
    if is_part:
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{found.st_size}"
    if request.method == "HEAD":
        os.close(file)
        return Response(b"", 200, headers, "application/octet-stream")
    return StreamingResponse(
        _content(FileIO(file), begin, end), 206 if is_part else 200, headers, "application/octet-stream"
    )


def _range(asked: str, size: int) -> tuple[int, int]:
    """Return the first byte and the one after the last. What is no single range is the whole file, as HTTP has it."""
    match = _RANGE.fullmatch(asked.strip())
    if match is None or match[0] == "bytes=-":
        return 0, size
    if not match[1]:
        begin, end = max(size - int(match[2]), 0), size
    else:
        begin = int(match[1])
        end = min(int(match[2]) + 1, size) if match[2] else size
        if match[2] and int(match[2]) < begin:
            return 0, size
    if begin >= size or begin >= end:
        raise ApiRefusal(416, f"The file has {size} bytes.", {"Content-Range": f"bytes */{size}"}, size=size)
    return begin, end


async def _content(file: FileIO, begin: int, end: int) -> AsyncIterator[bytes]:
    with file:
        while begin < end:
            block = await asyncio.to_thread(os.pread, file.fileno(), min(BLOCK, end - begin), begin)
            if not block:
                raise OSError("The file became shorter while it was sent.")
            begin += len(block)
            yield block
