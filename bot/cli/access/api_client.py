"""Call the REST API for a command, over HTTP or in this process.

With `GPU_SHOPPER_URL` (and `GPU_SHOPPER_API_KEY`) calls go to that service; without them the same routes answer in this
process, for the operator who runs it. So there is one set of commands, and one output.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import typer
from dotenv import dotenv_values

from bot import logs, vault
from bot.cli.command_table import load
from bot.cli.terminal.busy import busy
from bot.cli.terminal.options import UNKNOWN
from bot.cli.terminal.screen import BAD_SETTINGS, NO_PERMISSION, UNAVAILABLE, fail
from bot.rules.access.agents import AGENT_HEADER, AGENT_VARIABLE
from bot.rules.values.reply_code import ReplyCode

URL, KEY = "GPU_SHOPPER_URL", "GPU_SHOPPER_API_KEY"
TIMEOUT_S = 60.0
#: The most items that one page of the API has.
PAGE = 100
#: Refusals of an id that names nothing.
NOT_FOUND = frozenset({ReplyCode.UNKNOWN_ID, ReplyCode.UNKNOWN_KEY, ReplyCode.UNKNOWN_WEBHOOK})
#: HTTP status of a refusal → exit code; every other refusal is 1.
ENDS: Mapping[int, int] = {401: NO_PERMISSION, 403: NO_PERMISSION, 429: UNAVAILABLE, 500: UNAVAILABLE, 503: UNAVAILABLE}
#: Refusals of a wrong option or word, which end with 2.
TYPED = frozenset(
    {
        ReplyCode.BAD_WORD,
        ReplyCode.INVALID,
        ReplyCode.BAD_CONSUMER,
        ReplyCode.BAD_OWNER,
        ReplyCode.BAD_SCOPE,
        ReplyCode.BAD_EXPIRY,
        ReplyCode.PRIVATE_KEY,
    }
)

#: What a command waits for, by the first part of the path; everything else waits for the service alone.
DOING: Mapping[str, str] = dict.fromkeys(("inventory", "plans", "compare", "preflight", "recover"), "Asking the clouds")
WAITING = "Waiting for GPU Shopper"

Found = TypeVar("Found")


class RefusedCall(Exception):
    """A refusal by the service: `code` is stable, the message is its sentence."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code

    @property
    def ends_with(self) -> int:
        """Return the exit code."""
        return 2 if self.code in TYPED or self.code in NOT_FOUND else ENDS.get(self.status, 1)


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Call the REST API for a command."""

    http: httpx.AsyncClient

    async def get(self, path: str, **params: Any) -> Any:
        """Send a GET; empty parameters are left out."""
        said = {name: value for name, value in params.items() if value not in (None, "", False)}
        return await self._call("GET", path, params=said)

    async def pages(self, path: str, most: int, **params: Any) -> Any:
        """Read a list page by page until there are `most` items or no more; returns one page with all of them."""
        items: list[Any] = []
        cursor: str | None = None
        while True:
            page = await self.get(path, **params, limit=min(PAGE, most - len(items)), cursor=cursor)
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None or len(items) >= most:
                return {"items": items, "next_cursor": cursor}

    async def text(self, path: str, **params: Any) -> str:
        """Send a GET whose answer is a text, such as a CSV file."""
        said = {name: value for name, value in params.items() if value}
        return str(await self._call("GET", path, params=said))

    async def post(self, path: str, body: Mapping[str, Any], key: str = "") -> Any:
        """Send a POST; `key` repeats an earlier call instead of making a new one."""
        headers = {"Idempotency-Key": key or secrets.token_urlsafe(16)}
        return await self._call("POST", path, json=dict(body), headers=headers)

    async def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a PUT."""
        return await self._call("PUT", path, json=dict(body))

    async def delete(self, path: str) -> Any:
        """Send a DELETE."""
        return await self._call("DELETE", path)

    async def lines(self, path: str, **params: Any) -> AsyncIterator[str]:
        """Send a GET and yield the lines of its answer as they arrive; empty parameters are left out."""
        given = {name: value for name, value in params.items() if value not in (None, "", False)}
        async with self.http.stream("GET", f"/api/v1{path}", params=given) as answer:
            if not answer.is_success:
                await answer.aread()
                self._said(answer)
            async for line in answer.aiter_lines():
                yield line

    async def _call(self, method: str, path: str, **more: Any) -> Any:
        subject, _, named = path.strip("/").partition("/")
        with busy(DOING.get(subject, WAITING)):
            answer = await self.http.request(method, f"/api/v1{path}", **more)
        return self._said(answer, subject, named)

    def _said(self, answer: httpx.Response, subject: str = "", named: str = "") -> Any:
        """Return the JSON of an answer, or the text of one that is text. Raises `RefusedCall`."""
        if answer.is_success and answer.headers.get("content-type", "").startswith("text/"):
            return answer.text
        try:
            said = answer.json()
        except ValueError:
            said = {}
        if answer.is_success:
            return said
        if not isinstance(said, dict) or "code" not in said:
            sentence = f"{answer.url.host} answered {answer.status_code}, which is not this service."
            raise RefusedCall(503, "not_this_service", sentence)
        detail, unknown = str(said.get("detail", "")), UNKNOWN.get(subject, "")
        if said["code"] in NOT_FOUND and unknown and "More than one" not in detail and ":" not in named:
            detail = unknown.format(id=named.split("/", maxsplit=1)[0])
        raise RefusedCall(answer.status_code, str(said["code"]), detail)


def elsewhere() -> tuple[str, str] | None:
    """Return `(address, key)` of the service that commands call; None when they use this machine's own ledger."""
    found = {name: os.environ.get(name) for name in (URL, KEY)}
    if not all(found.values()) and Path(".env").is_file():
        written = dotenv_values(".env")
        found = {name: value or written.get(name) for name, value in found.items()}
    address, key = found[URL], found[KEY]
    if not address:
        return None
    if key == vault.REFERENCE:
        try:
            key = vault.resolved({KEY: key})[KEY]
        except vault.NoKeyring as error:
            fail(f"{error}.", BAD_SETTINGS)
    host = urlsplit(address)
    if host.scheme != "https" and host.hostname not in ("127.0.0.1", "::1", "localhost"):
        fail(f"{URL} must begin with https://, because the key is sent there.", BAD_SETTINGS)
    if not key:
        fail(f"{URL} is set and {KEY} is not; gpu-shopper keys create makes a key on the server.", BAD_SETTINGS)
    logs.register_secrets([key])
    return address.rstrip("/"), key


def agent_header(*, is_agent: bool = False) -> dict[str, str]:
    """Return the header that says that an AI agent calls; empty for a person. A variable says so for every command."""
    return {AGENT_HEADER: "1"} if is_agent or os.environ.get(AGENT_VARIABLE) else {}


@asynccontextmanager
async def _there(address: str, key: str, *, is_agent: bool = False) -> AsyncIterator[ApiClient]:
    headers = {"Authorization": f"Bearer {key}", **agent_header(is_agent=is_agent)}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=TIMEOUT_S, trust_env=False) as http:
        yield ApiClient(http)


def _here(*, is_agent: bool = False) -> AbstractAsyncContextManager[ApiClient]:
    with busy("Opening the ledger"):
        found: AbstractAsyncContextManager[ApiClient] = load("access.in_process_api").opened(is_agent=is_agent)
    return found


def connected(*, is_agent: bool = False) -> AbstractAsyncContextManager[ApiClient]:
    """Open the API for the length of a block: over HTTP, or in this process, for the operator or their AI agent."""
    where = elsewhere()
    return _there(*where, is_agent=is_agent) if where else _here(is_agent=is_agent)


def spoken(step: Callable[[ApiClient], Awaitable[Found]]) -> Found:
    """Run `step` with the API and return its result; a refusal ends the program with its sentence and exit code."""
    where = elsewhere()

    async def within() -> Found:
        async with _there(*where) if where else _here() as api:
            return await step(api)

    try:
        return asyncio.run(within())
    except RefusedCall as refused:
        fail(str(refused), refused.ends_with)
    except httpx.TransportError as error:
        there = where[0] if where else "the service"
        fail(f"Can't reach {there} ({type(error).__name__}). Check {URL}, and that `gpu-shopper serve` runs there.",
             UNAVAILABLE)  # fmt: skip
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
