"""Deliver to the app: signed requests or Socket Mode envelopes, with Slack's three seconds for an answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from bot.practice.model import Json
from bot.practice.socket_mode import NoConnection, SocketHub
from bot.practice.workspace import Workspace

OPERATION_TIMEOUT: Final = "operation_timeout"
DISPATCH_FAILED: Final = "dispatch_failed"
EVENT_RETRY_AFTER_S: Final = (0.0, 60.0, 300.0)
LATE_LIMIT_S: Final = 30.0
FORM: Final = "application/x-www-form-urlencoded"
# Building a TLS context takes longer than a whole delivery on loopback, so one serves all.
_TLS: Final = ssl.create_default_context()


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return Slack's v0 signature: HMAC-SHA256 over `v0:{timestamp}:{body}`."""
    base = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Ack:
    """The app's answer. `error` is what the person reads when there was none in time or a bad one."""

    error: str | None = None
    status: int | None = None
    body: Json = field(default_factory=dict)
    took_s: float = 0.0
    no_retry: bool = False


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The exact bytes and headers of one delivery; sending it twice is a replay."""

    body: bytes
    headers: dict[str, str]


class Courier:
    """Deliver everything that happens in one workspace to its app."""

    def __init__(self, workspace: Workspace, hub: SocketHub) -> None:
        self._workspace = workspace
        self.hub = hub
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: list[Callable[[], Awaitable[Ack]]] = []

    # ── the three kinds of delivery ──────────────────────────────────────────────────────────────

    async def command(self, fields: Json) -> Ack:
        """Deliver a slash command."""
        return await self._deliver("slash_commands", "slash_commands", fields, urlencode(fields).encode(), FORM)

    async def interaction(self, payload: Json) -> Ack:
        """Deliver block_actions, view_submission or view_closed."""
        body = urlencode({"payload": json.dumps(payload)}).encode()
        kind = str(payload["type"])
        return await self._deliver(kind, "interactive", payload, body, FORM)

    def event(self, payload: Json) -> None:
        """Deliver an event in the background, with three more attempts: at once, after 1 and after 5 minutes."""
        self._spawn(self._event(payload))

    async def _event(self, payload: Json) -> None:
        body = json.dumps(payload).encode()
        reason, failed_s = "", self._due(0)
        for attempt, wait_s in enumerate((0.0, *EVENT_RETRY_AFTER_S)):
            await self._sleep_until(failed_s + wait_s)
            retry = {"x-slack-retry-num": str(attempt), "x-slack-retry-reason": reason} if attempt else {}
            ack = await self._deliver(
                "event", "events_api", payload, body, "application/json", retry=retry, attempt=attempt
            )
            if ack.error is None or ack.no_retry:
                return
            reason = {OPERATION_TIMEOUT: "http_timeout"}.get(
                ack.error, "http_error" if ack.status else "connection_failed"
            )

    # ── faults ───────────────────────────────────────────────────────────────────────────────────

    async def _deliver(
        self,
        name: str,
        envelope: str,
        payload: Json,
        body: bytes,
        content_type: str,
        *,
        retry: dict[str, str] | None = None,
        attempt: int = 0,
    ) -> Ack:
        signed = self.sign(body, content_type, retry or {})

        async def send(limit_s: float = LATE_LIMIT_S) -> Ack:
            return await self._once(name, envelope, payload, signed, attempt, limit_s)

        fault = self._workspace.faults.take("delivery", name)
        kind = fault.kind if fault is not None else ""
        if kind == "lose":
            return Ack(OPERATION_TIMEOUT)
        if kind == "late" and fault is not None:
            self._spawn(self._later(self._due(fault.seconds), send))
            return Ack(OPERATION_TIMEOUT)
        if kind == "reorder":
            self._held.append(send)
            return Ack(OPERATION_TIMEOUT)
        ack = await send(self._workspace.ack_limit_s)
        if kind == "duplicate":
            await send()
        self._release()
        return ack

    def _release(self) -> None:
        """Send what was held back to arrive after something else."""
        for held in self._held:
            self._spawn(self._later(self._due(0), held))
        self._held.clear()

    def _due(self, seconds: float) -> float:
        # Computed before the task starts, so that a clock that travels in between counts.
        return self._workspace.clock.monotonic() + seconds

    async def _later(self, due_s: float, deliver: Callable[[], Awaitable[Ack]]) -> None:
        await self._sleep_until(due_s)
        await deliver()

    async def _sleep_until(self, due_s: float) -> None:
        remaining_s = due_s - self._workspace.clock.monotonic()
        if remaining_s > 0:
            await self._workspace.clock.sleep(remaining_s)

    # ── the wire ─────────────────────────────────────────────────────────────────────────────────

    def sign(self, body: bytes, content_type: str, extra: dict[str, str] | None = None) -> SignedRequest:
        """Return the headers of a request with which the app verifies its signature."""
        stamp = str(int(self._workspace.signing_clock.now().timestamp()))
        headers = {
            "content-type": content_type,
            "x-slack-request-timestamp": stamp,
            "x-slack-signature": signature(self._workspace.signing_secret, stamp, body),
            "user-agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
            **(extra or {}),
        }
        return SignedRequest(body, headers)

    async def _once(
        self, name: str, envelope: str, payload: Json, signed: SignedRequest, attempt: int, limit_s: float
    ) -> Ack:
        watch = self._workspace.signing_clock.monotonic
        began_s = watch()
        try:
            async with asyncio.timeout(limit_s):
                if self._workspace.request_url is None:
                    body = await self.hub.send(
                        envelope, payload, attempt=attempt, reason=signed.headers.get("x-slack-retry-reason", "")
                    )
                    ack = Ack(None, 200, body, watch() - began_s)
                else:
                    ack = await self.send_http(self._workspace.request_url, signed)
        except TimeoutError:
            ack = Ack(OPERATION_TIMEOUT, None, {}, watch() - began_s)
        except (httpx.HTTPError, NoConnection) as error:
            ack = Ack(DISPATCH_FAILED, None, {"detail": str(error) or type(error).__name__}, watch() - began_s)
        response = {"error": ack.error, "took_s": round(ack.took_s, 4), "body": ack.body}
        self._workspace.record("delivery", name, payload, response, ack.status)
        return ack

    async def send_http(self, url: str, signed: SignedRequest) -> Ack:
        """Post signed bytes on a fresh connection. Raises `httpx.HTTPError`."""
        watch = self._workspace.signing_clock.monotonic
        began_s = watch()
        # trust_env=False: a proxy from the environment must never carry what belongs on loopback.
        async with httpx.AsyncClient(trust_env=False, verify=_TLS, timeout=LATE_LIMIT_S) as client:
            response = await client.post(url, content=signed.body, headers=signed.headers)
        error = None if response.status_code == 200 else DISPATCH_FAILED
        no_retry = response.headers.get("x-slack-no-retry") == "1"
        return Ack(error, response.status_code, _read(response), watch() - began_s, no_retry)

    # ── background ───────────────────────────────────────────────────────────────────────────────

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait until every delivery is done, retries included; releases reordered deliveries first."""
        self._release()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def aclose(self) -> None:
        """Cancel the deliveries that are under way."""
        self._held.clear()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _read(response: httpx.Response) -> Json:
    """Read the answer as JSON; plain words become `{"text": …}`, as Slack shows them."""
    if not response.content:
        return {}
    try:
        data = response.json()
    except ValueError:
        return {"text": response.text}
    return data if isinstance(data, dict) else {"text": str(data)}
