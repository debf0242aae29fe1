"""Call Slack's Web API, never inside a transaction, and report errors as types.

Reads are repeated when Slack limits the rate. Nothing else is repeated here, because a second `chat.postMessage` after
a lost reply would be a second message; the outbox decides when to try again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.http_retry.async_handler import AsyncRetryHandler
from slack_sdk.http_retry.builtin_async_handlers import (
    AsyncConnectionErrorRetryHandler,
    AsyncRateLimitErrorRetryHandler,
)
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack.settings import SlackSettings
from ledger.kernel.network_guard import forbid_in_transaction
from ledger.kernel.secret_shapes import without_signatures

#: Seconds to wait when Slack limits the rate without saying for how long.
DEFAULT_WAIT_S: Final = 5.0

#: The methods that only read; Slack's own client sends them as GET.
READS: Final = frozenset({"conversations.history", "conversations.replies", "users.info", "usergroups.users.list"})

#: The methods that take their arguments in the address, never as JSON.
IN_ADDRESS: Final = frozenset({"files.getUploadURLExternal", "files.completeUploadExternal"})

#: Slack's answers to an app that lacks the right to a call, whatever token it has.
NO_RIGHT: Final = frozenset({"missing_scope", "no_permission"})


#: Where messages and dialogs have what people read. A button's value and the text of an input stay whole.
_READ: Final = frozenset(
    ("text", "alt_text", "title", "url", "fallback", "label", "hint", "description", "initial_comment")
)


def readable(key: str, value: Any) -> Any:
    """Return a part of a message or an answer without the signatures of addresses in what people read of it."""
    if isinstance(value, str):
        return without_signatures(value) if key in _READ else value
    if isinstance(value, Mapping):
        return {name: readable(name, item) for name, item in value.items()}
    return [readable(key, item) for item in value] if isinstance(value, list | tuple) else value


class WebError(Exception):
    """Slack refused, or did not answer. `code` is Slack's own error code, `no_answer` when there was none.

    `retry_after_s` is set when Slack asks to wait; `details` are its messages about blocks.
    """

    def __init__(self, method: str, code: str, *, retry_after_s: float | None = None, details: str = "") -> None:
        super().__init__(f"{method}: {code}" + (f" ({details})" if details else ""))
        self.method = method
        self.code = code
        self.retry_after_s = retry_after_s
        self.details = details

    @property
    def lacks_right(self) -> bool:
        """Whether repeating the call is useless until somebody gives the app another scope."""
        return self.code in NO_RIGHT


class Web:
    """Call the Web API of one workspace with one connection pool."""

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._clients: dict[bool, AsyncWebClient] = {}

    def bare_client(
        self, token: str | None = None, retry_handlers: list[AsyncRetryHandler] | None = None
    ) -> AsyncWebClient:
        """Build a client of the SDK; Bolt and Socket Mode use it without a token. It reads no environment variable."""
        client = AsyncWebClient(
            token=token,
            base_url=self._settings.base_url,
            timeout=self._settings.timeout_s,
            retry_handlers=retry_handlers or [],
            logger=quiet_logger("bot.slack.sdk"),
        )
        # The SDK fills an empty proxy from HTTPS_PROXY and ignores NO_PROXY, so it is set after construction.
        client.proxy = self._settings.proxy
        return client

    def _client(self, *, reads: bool) -> AsyncWebClient:
        if reads not in self._clients:
            patient: list[AsyncRetryHandler] = [
                AsyncRateLimitErrorRetryHandler(max_retry_count=1),
                AsyncConnectionErrorRetryHandler(),
            ]
            self._clients[reads] = self.bare_client(self._settings.bot_token, patient if reads else None)
        return self._clients[reads]

    async def call(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        """Call one method; arguments that are None are left out. Raises `WebError`."""
        forbid_in_transaction(f"Slack's {method}")
        reads = method in READS
        client = self._client(reads=reads)
        client.session = self._open_session()
        sent = {key: readable(key, value) for key, value in arguments.items() if value is not None}
        how: dict[str, Any] = {"http_verb": "GET", "params": sent} if reads else {"json": sent}
        how = {"params": sent} if method in IN_ADDRESS else how
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                response = await client.api_call(method, **how)
        except SlackApiError as error:
            raise _refusal(method, error) from None
        except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise WebError(method, "no_answer", details=type(error).__name__) from error
        return response.data if isinstance(response.data, dict) else {}

    async def share_picture(self, channel: str, name: str, content: bytes, *, title: str, said: str) -> None:
        """Upload a picture and show it in one conversation, under `said`. Raises `WebError`.

        Only that conversation can see it. Repeating this shows it again.
        """
        size = len(content)
        where = await self.call("files.getUploadURLExternal", filename=name, length=size, alt_txt=title)
        try:
            async with self._open_session().post(
                str(where.get("upload_url")), data=content, proxy=self._settings.proxy
            ) as answer:
                if answer.status != 200:
                    raise WebError("upload", f"http_{answer.status}")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise WebError("upload", "no_answer", details=type(error).__name__) from error
        files = json.dumps([{"id": where.get("file_id"), "title": title}])
        await self.call("files.completeUploadExternal", files=files, channel_id=channel, initial_comment=said)

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._settings.timeout_s))
        return self._session


def _refusal(method: str, error: SlackApiError) -> WebError:
    response = error.response
    status = getattr(response, "status_code", 0)
    headers = getattr(response, "headers", {}) or {}
    data = getattr(response, "data", None)
    data = data if isinstance(data, Mapping) else {}
    if status == 429 or data.get("error") in ("ratelimited", "rate_limited"):
        return WebError(method, "ratelimited", retry_after_s=_seconds(headers.get("Retry-After")))
    details = data.get("errors") or (data.get("response_metadata") or {}).get("messages") or []
    code = str(data.get("error") or f"http_{status}")
    return WebError(method, code, details="; ".join(str(line) for line in details)[:500])


def _seconds(text: Any) -> float:
    try:
        return max(0.0, float(text))
    except (TypeError, ValueError):
        return DEFAULT_WAIT_S


def quiet_logger(name: str) -> logging.Logger:
    """Return a logger at WARNING: below it Slack's libraries log whole payloads, which hold tokens."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.WARNING)
    return logger
