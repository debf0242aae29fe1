"""Refuse what Slack did not sign and what is malformed, before Bolt parses it.

Bolt parses before it verifies, so a non-numeric timestamp, a wrong encoding or a broken payload would be a 500 to
any caller. Here each of them is 401, a body above 1 MiB is 413, and only signed, well-formed bytes pass.

Every type that this app listens to is checked as deep as Bolt reads it. Every other type is refused, because Bolt knows
old types whose fields it takes for granted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.logs import OncePerMinute
from ledger.kernel.clock import Clock

BODY_MAX: Final = 1024 * 1024
#: Bodies up to this size are always read; the larger ones that are read at once have at most `HELD_MAX` together.
SMALL: Final = 64 * 1024
HELD_MAX: Final = 32 * 1024 * 1024
TOO_BIG: Final = "the body is above 1 MiB"
#: What a caller reads whom Slack's signature does not vouch for.
UNSIGNED: Final = "the request is not signed by Slack"
#: Slack's own window, docs.slack.dev "Verifying requests from Slack".
WINDOW_S: Final = 300
FIELDS_MAX: Final = 64
#: Where the application behind finds the payload, so that nothing is parsed twice, and never in two ways.
PAYLOAD: Final = "gpu_shopper.slack_payload"

TIMESTAMP_HEADER: Final = "x-slack-request-timestamp"
SIGNATURE_HEADER: Final = "x-slack-signature"

_TIMESTAMP: Final = re.compile(rb"[0-9]{1,11}")
_SIGNATURE: Final = re.compile(rb"v0=[0-9a-f]{64}")

#: The types that pass. A slash command has none.
_TAKEN: Final = frozenset({"block_actions", "view_submission", "view_closed", "event_callback", "url_verification"})
#: Fields in which Bolt reads an id: an object that has one, or the id itself.
_NAMED: Final = ("user", "team", "enterprise", "channel")
#: Fields in which Bolt reads the same again, one level deeper.
_NESTED: Final = ("event", "message", "previous_message", "item", "assistant_thread", "container", "function_data")
#: Lists of objects.
_LISTS: Final = ("authorizations", "response_urls")
#: What Slack sends is three levels deep; Bolt follows any depth until the interpreter gives up.
_DEEPEST: Final = 6
#: Type → the object that must be there, and the texts that it must have.
_NEEDED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "view_submission": ("view", ("type", "callback_id")),
    "view_closed": ("view", ("type", "callback_id")),
    "event_callback": ("event", ("type",)),
}

log = logging.getLogger(__name__)


class RequestRefused(Exception):
    """A refused request; `status` is the HTTP answer, the message says why in the log."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Guard:
    """Verify and parse requests before the application. Raises ValueError for an empty secret: everybody could sign."""

    def __init__(self, app: ASGIApp, signing_secret: str, clock: Clock) -> None:
        if not signing_secret:
            raise ValueError("the signing secret is empty; it is on the app's Basic Information page in Slack")
        self._app = app
        self._secret = signing_secret.encode()
        self._clock = clock
        self._lines = OncePerMinute(clock.monotonic)
        #: Bytes of large bodies that are being read, whose signature can be checked only when they are complete.
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Verify and parse, then pass on with the payload under `PAYLOAD`; other protocols pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            if scope["method"] != "POST":
                raise RequestRefused(401, "only signed POST requests are taken")
            headers = _headers(scope["headers"])
            stamp = may_be_signed(headers, self._clock)
            body = await self._read(headers, receive)
            verify(self._secret, stamp, headers, body)
            scope[PAYLOAD] = well_formed(body, headers.get("content-type", b""))
        except RequestRefused as refused:
            self._log(refused)
            await _answer(refused)(scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)

    def is_signed(self, headers: Mapping[bytes, bytes], body: bytes | None = None) -> bool:
        """Whether Slack may have sent a request with these headers, or did sign it: with the body."""
        signature = {name: headers.get(name.encode(), b"") for name in (TIMESTAMP_HEADER, SIGNATURE_HEADER)}
        try:
            stamp = may_be_signed(signature, self._clock)
            if body is not None:
                verify(self._secret, stamp, signature, body)
        except RequestRefused as refused:
            self._log(refused)
            return False
        return True

    def _log(self, refused: RequestRefused) -> None:
        # The usual cause is a wrong signing secret, which an operator finds here. The body is never logged.
        if (more := self._lines.may_log(str(refused))) is not None:
            log.info("a request to the Slack endpoint was refused: %s (%d more in the last minute)", refused, more)

    async def _read(self, headers: dict[str, bytes], receive: Receive) -> bytes:
        """Return the body. Raises `RequestRefused` for one that is too large, or while too many large ones arrive."""
        declared = headers.get("content-length", b"0")
        if declared.isdigit() and (len(declared) > 9 or int(declared) > BODY_MAX):
            raise RequestRefused(413, TOO_BIG)
        chunks: list[bytes] = []
        size = counted = 0
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise RequestRefused(401, "the caller went away")
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > BODY_MAX:
                    raise RequestRefused(413, TOO_BIG)
                if size > SMALL:
                    self._held += size - counted
                    counted = size
                if counted and self._held > HELD_MAX:
                    raise RequestRefused(503, "too many large bodies arrive at once")
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
        finally:
            self._held -= counted


def may_be_signed(headers: dict[str, bytes], clock: Clock) -> bytes:
    """Return the timestamp of a request whose headers a signed one has, within the last (or next) five minutes.

    Raises `RequestRefused` for all others, whose bodies are never read.
    """
    stamp = headers.get(TIMESTAMP_HEADER, b"")
    signature = headers.get(SIGNATURE_HEADER, b"")
    if not _TIMESTAMP.fullmatch(stamp) or not _SIGNATURE.fullmatch(signature):
        raise RequestRefused(401, "the signature headers are missing or malformed")
    if abs(int(clock.now().timestamp()) - int(stamp)) > WINDOW_S:
        raise RequestRefused(401, "the timestamp is more than five minutes away")
    return stamp


def verify(secret: bytes, stamp: bytes, headers: dict[str, bytes], body: bytes) -> None:
    """Raise `RequestRefused` unless Slack signed exactly these bytes."""
    expected = "v0=" + hmac.new(secret, b"v0:" + stamp + b":" + body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), headers[SIGNATURE_HEADER]):
        raise RequestRefused(401, "the signature does not match")


def well_formed(body: bytes, content_type: bytes) -> dict[str, Any]:
    """Return the payload: a JSON object, a form's `payload`, or the form. Raises `RequestRefused` for anything else."""
    try:
        text = body.decode("utf-8")
        if content_type.split(b";")[0].strip().lower() == b"application/json" or text.startswith("{"):
            parsed = json.loads(text)
        else:
            form = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
            parsed = json.loads(form["payload"]) if "payload" in form else form
    except (ValueError, RecursionError) as error:
        raise RequestRefused(401, f"the body cannot be read: {type(error).__name__}") from error
    if not isinstance(parsed, dict) or not parsed:
        raise RequestRefused(401, "the body is not an object")
    if odd := problem(parsed):
        raise RequestRefused(401, odd)
    return parsed


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, value in pairs:
        key = name.decode("latin-1").lower()
        if key in found and key in (TIMESTAMP_HEADER, SIGNATURE_HEADER):
            raise RequestRefused(401, "a signature header occurs twice")
        found[key] = value
    return found


def _again(body: bytes, receive: Receive) -> Receive:
    """Replay the body to the application, then pass on whatever the server sends (a disconnect)."""
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _answer(refused: RequestRefused) -> PlainTextResponse:
    # Only the log has the reason: a caller who cannot sign must not learn what was wrong.
    said = {413: "the request is too large", 503: "try again in a moment"}
    return PlainTextResponse(said.get(refused.status, UNSIGNED), refused.status)


def problem(body: Mapping[str, Any]) -> str:
    """Describe what is malformed in an interaction or event; empty when nothing is. Slash commands always pass."""
    if not isinstance(body.get("view", {}), Mapping):
        return "view is no object"  # Bolt looks into it wherever it stands, whatever the type.
    kind = body.get("type")
    if kind is None:
        return "" if all(isinstance(value, str) for value in body.values()) else "an object without a type"
    if not isinstance(kind, str) or kind not in _TAKEN:
        return "the type is none that this app listens to"
    if odd := _odd(body, _DEEPEST):
        return odd
    if "actions" in body or kind == "block_actions":
        actions = body.get("actions")
        if not actions or not _objects(actions) or not all(_texts(one, ("type", "action_id")) for one in actions):
            return "actions are no actions"
    name, texts = _NEEDED.get(kind, ("", ()))
    return f"{name} is incomplete" if name and not _texts(body.get(name), texts) else ""


def _odd(body: Mapping[str, Any], deeper: int) -> str:
    """Describe what is malformed in the parts that Bolt reads, here and below; at most `deeper` levels."""
    if deeper == 0:
        return "it is nested too deep"
    for name in _NAMED:
        if not isinstance(body.get(name), Mapping | str | None):
            return f"{name} is no object"
    below: list[Mapping[str, Any]] = []
    for name in _NESTED:
        part = body.get(name)
        if not isinstance(part, Mapping | None):
            return f"{name} is no object"
        below += [part] if part is not None else []
    for name in _LISTS:
        parts = body.get(name, ())
        if not _objects(parts):
            return f"{name} are no objects"
        below += parts
    return next((odd for part in below if (odd := _odd(part, deeper - 1))), "")


def _objects(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(one, Mapping) for one in value)


def _texts(value: Any, names: tuple[str, ...]) -> bool:
    return isinstance(value, Mapping) and all(isinstance(value.get(name), str) for name in names)
