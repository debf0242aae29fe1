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

from providers.adapter_helpers import clean, seconds
from providers.error_table import Row, first, row
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
from providers.http import HttpReply

CLOUD = "kaggle"


_SESSIONS = ("session count of",)
_WEEKLY = ("weekly gpu quota", "weekly tpu quota")

#: The first matching row wins. Status 200 is a push that `error` refuses without naming a version: nothing was made.
#: A status that no row names is an unknown outcome, every 5xx and a 409 among them.
CREATE_OUTCOMES: tuple[Row, ...] = (
    row(200, QuotaExceeded, "runs as many sessions as the account may have", *_SESSIONS),
    row(200, QuotaExceeded, "has given this week's GPU hours", *_WEEKLY),
    row(200, InvalidSpec, "refuses the push"),
    row(400, InvalidSpec, "refuses what was pushed"),
    row(401, AuthFailed, "does not accept the credentials"),
    row(403, AuthFailed, "does not let these credentials push"),
    row(404, InvalidSpec, "does not know the address of the push"),
    row(413, InvalidSpec, "refuses the script as too large"),
    row(422, InvalidSpec, "refuses what was pushed"),
    row(429, RateLimited, "asks to slow down"),
)

#: Every other call. A 403 is also Kaggle's answer to a slug that does not exist; the caller tells the two apart.
CALL_OUTCOMES: tuple[Row, ...] = (
    row(400, InvalidSpec, "refuses the call"),
    row(401, AuthFailed, "does not accept the credentials"),
    row(403, AuthFailed, "does not let these credentials do that"),
    row(404, InvalidSpec, "does not know what was asked for"),
    row(429, RateLimited, "asks to slow down"),
)


@dataclass(frozen=True, slots=True)
class Pushed:
    """A confirmed push: the path `owner/slug` under which Kaggle filed it, and the version, from 1."""

    path: str
    version: int


def pushed(reply: HttpReply, now: datetime, secrets: Iterable[str] = ()) -> Pushed:
    """The run that a push made; raises what any other answer means. A yes has a ref and a version and no complaint."""
    body = reply.fields
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


def _refused(reply: HttpReply, status: int, now: datetime, secrets: Iterable[str]) -> ProviderError:
    if status >= 400 and reply.status != 429 and not _own(reply):
        # Something between us and the API wrote this: it says nothing about what the API did.
        return OutcomeUnknown(CLOUD, f"kaggle answered the push with {reply.status} in a format that is not its own")
    detail = _sentence(reply.body)
    found = first(CREATE_OUTCOMES, status, text=detail)
    if found is None:
        return OutcomeUnknown(CLOUD, f"kaggle answered the push with {status}, which does not tell its outcome")
    wait_s = retry_after_s(reply.headers.get("retry-after", ""), now)
    return found.error(CLOUD, wait_s, subject="kaggle", detail=clean(detail, secrets))


def call_error(reply: HttpReply, now: datetime, secrets: Iterable[str] = ()) -> ProviderError | None:
    """The error for an answer to anything but a push; None when it is a plain success."""
    status = status_of(reply)
    if 200 <= status < 300:
        return None
    if status >= 500 or status == 408:
        return Unavailable(CLOUD, f"kaggle answered {status}")
    detail = _sentence(reply.body)
    found = first(CALL_OUTCOMES, status, text=detail)
    if found is None:
        return UnexpectedResponse(CLOUD, f"kaggle answered {status}, which is not documented for this call")
    wait_s = retry_after_s(reply.headers.get("retry-after", ""), now)
    return found.error(CLOUD, wait_s, subject="kaggle", detail=clean(detail, secrets))


def status_of(reply: HttpReply) -> int:
    """The status that counts: an error object's `code`, else the HTTP status."""
    code = reply.fields.get("code")
    return code if reply.ok and isinstance(code, int) and code >= 400 else reply.status


def retry_after_s(value: str, now: datetime) -> float | None:
    """Seconds from a `Retry-After` of either form, seconds or an HTTP date; None when it is neither."""
    asked = seconds(value)
    if asked is not None:
        return asked
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max((at - now).total_seconds(), 0.0)


def _own(reply: HttpReply) -> bool:
    return isinstance(reply.body, dict) and ("code" in reply.body or "message" in reply.body or "error" in reply.body)


def _sentence(body: Any) -> str:
    """`error` of a push, or `message` of an error object; "" when there is neither."""
    parts = [body.get("error"), body.get("errorNullable"), body.get("message")] if isinstance(body, dict) else []
    return next((part for part in parts if isinstance(part, str) and part), "")
