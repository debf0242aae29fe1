"""What an answer of Kaggle means, as tables. The text of an error is looked at here and nowhere else.

Two kinds of no: an error object `{"code": 429, "message": "…"}`, which counts by its code even under HTTP 200, and for
a push a 200 whose `error` holds a sentence. Matching is on lower-case fragments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from providers.errors import (
    AuthFailed,
    InvalidSpec,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Unavailable,
    UnexpectedResponse,
)
from providers.http import Reply

CLOUD = "kaggle"
DETAIL_MAX = 200
#: Shorter values are left in a cloud's text: hiding every "1" would only garble the sentence.
SECRET_MIN = 6


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: `status`, and fragments of which one must occur in the text (none = any text)."""

    status: int
    error: type[ProviderError]
    says: str
    fragments: tuple[str, ...] = ()


_SESSIONS = ("session count of",)
_WEEKLY = ("weekly gpu quota", "weekly tpu quota")

#: The first matching row wins. Status 200 is a push that `error` refuses without naming a version: nothing was made.
#: A status that no row names is an unknown outcome, every 5xx and a 409 among them.
CREATE_OUTCOMES: tuple[Rule, ...] = (
    Rule(200, QuotaExceeded, "runs as many sessions as the account may have", _SESSIONS),
    Rule(200, QuotaExceeded, "has given this week's GPU hours", _WEEKLY),
    Rule(200, InvalidSpec, "refuses the push"),
    Rule(400, InvalidSpec, "refuses what was pushed"),
    Rule(401, AuthFailed, "does not accept the credentials"),
    Rule(403, AuthFailed, "does not let these credentials push"),
    Rule(404, InvalidSpec, "does not know the address of the push"),
    Rule(413, InvalidSpec, "refuses the script as too large"),
    Rule(422, InvalidSpec, "refuses what was pushed"),
    Rule(429, RateLimited, "asks to slow down"),
)

#: Every other call. A 403 is also Kaggle's answer to a slug that does not exist; the caller tells the two apart.
CALL_OUTCOMES: tuple[Rule, ...] = (
    Rule(400, InvalidSpec, "refuses the call"),
    Rule(401, AuthFailed, "does not accept the credentials"),
    Rule(403, AuthFailed, "does not let these credentials do that"),
    Rule(404, InvalidSpec, "does not know what was asked for"),
    Rule(429, RateLimited, "asks to slow down"),
)


@dataclass(frozen=True, slots=True)
class Pushed:
    """A confirmed push: the path `owner/slug` under which Kaggle filed it, and the version, from 1."""

    path: str
    version: int


def pushed(reply: Reply, now: datetime, secrets: Iterable[str] = ()) -> Pushed:
    """The run that a push made; raises what any other answer means. A yes has a ref and a version and no complaint."""
    body = reply.body if isinstance(reply.body, dict) else {}
    status = status_of(reply)
    ref, version = body.get("ref"), body.get("versionNumber")
    path = ref.removeprefix("/code/").strip("/") if isinstance(ref, str) else ""
    numbered = isinstance(version, int) and not isinstance(version, bool) and version >= 1
    named = path.count("/") == 1 and all(path.split("/"))
    sentence = _sentence(body)
    if status != 200:
        raise _refused(reply, status, now, secrets)
    if sentence and not numbered and not path:
        raise _refused(reply, 200, now, secrets)
    if not named or not isinstance(version, int) or not numbered:
        raise OutcomeUnknown(CLOUD, "kaggle answered the push without a readable version")
    if sentence or any(body.get(key) for key in body if key.startswith("invalid")):
        # It runs all the same, with less than was asked for: the sweep finds it by its name.
        raise OutcomeUnknown(CLOUD, "kaggle reports trouble with a push that it nevertheless runs")
    return Pushed(path, version)


def _refused(reply: Reply, status: int, now: datetime, secrets: Iterable[str]) -> ProviderError:
    if status >= 400 and reply.status != 429 and not _own(reply):
        # Something between us and the API wrote this: it says nothing about what the API did.
        return OutcomeUnknown(CLOUD, f"kaggle answered the push with {reply.status} in a format that is not its own")
    detail = _sentence(reply.body)
    rule = _match(CREATE_OUTCOMES, status, detail)
    if rule is None:
        return OutcomeUnknown(CLOUD, f"kaggle answered the push with {status}, which does not tell its outcome")
    return _build(rule, reply, clean(detail, secrets), now)


def call_error(reply: Reply, now: datetime, secrets: Iterable[str] = ()) -> ProviderError | None:
    """The error for an answer to anything but a push; None when it is a plain success."""
    status = status_of(reply)
    if 200 <= status < 300:
        return None
    if status >= 500 or status == 408:
        return Unavailable(CLOUD, f"kaggle answered {status}")
    detail = _sentence(reply.body)
    rule = _match(CALL_OUTCOMES, status, detail)
    if rule is None:
        return UnexpectedResponse(CLOUD, f"kaggle answered {status}, which is not documented for this call")
    return _build(rule, reply, clean(detail, secrets), now)


def status_of(reply: Reply) -> int:
    """The status that counts: an error object's `code`, else the HTTP status."""
    code = reply.body.get("code") if isinstance(reply.body, dict) else None
    return code if reply.ok and isinstance(code, int) and code >= 400 else reply.status


def clean(text: str, secrets: Iterable[str]) -> str:
    """The cloud's text without any of `secrets`, printable and at most 200 characters long."""
    for secret in sorted((s for s in secrets if len(s) >= SECRET_MIN), key=len, reverse=True):
        text = text.replace(secret, "[hidden]")
    return "".join(c if c.isprintable() else " " for c in text)[:DETAIL_MAX]


def retry_after_s(value: str, now: datetime) -> float | None:
    """Seconds from a `Retry-After` of either form, seconds or an HTTP date; None when it is neither."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return max((at - now).total_seconds(), 0.0)
    return seconds if 0 <= seconds < float("inf") else None


def _own(reply: Reply) -> bool:
    return isinstance(reply.body, dict) and ("code" in reply.body or "message" in reply.body or "error" in reply.body)


def _sentence(body: Any) -> str:
    """`error` of a push, or `message` of an error object; "" when there is neither."""
    parts = [body.get("error"), body.get("errorNullable"), body.get("message")] if isinstance(body, dict) else []
    return next((part for part in parts if isinstance(part, str) and part), "")


def _match(rules: tuple[Rule, ...], status: int, detail: str) -> Rule | None:
    text = detail.lower()
    for rule in rules:
        if rule.status == status and (not rule.fragments or any(f in text for f in rule.fragments)):
            return rule
    return None


def _build(rule: Rule, reply: Reply, detail: str, now: datetime) -> ProviderError:
    message = f"kaggle {rule.says}" + (f": {detail}" if detail else "")
    if issubclass(rule.error, RateLimited):
        return rule.error(CLOUD, message, retry_after_s(reply.headers.get("retry-after", ""), now))
    return rule.error(CLOUD, message)
