"""What an answer of RunPod means, as tables. The text of an error is looked at here and nowhere else.

REST v2 reports problems as RFC 9457 (`{title, status, detail, errors?}`) without any machine-readable code, so a few
statuses can be told apart by their text only. Matching is on lower-case fragments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from providers.errors import (
    AuthFailed,
    InsufficientFunds,
    InvalidSpec,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Unavailable,
    UnexpectedResponse,
    Unsupported,
)
from providers.http import Reply

CLOUD = "runpod"
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


_CAPACITY = ("no longer any instances", "no instances", "resources to deploy", "not enough free gpus")
#: Neither the status nor the wording of a spend-limit refusal is documented, so it is recognised in each candidate.
_SPEND_LIMIT = ("spend limit", "spending limit", "spend rate")

#: The first matching row wins. A status that no row names is an unknown outcome, every 5xx among them.
CREATE_OUTCOMES: tuple[Rule, ...] = (
    Rule(400, NoCapacity, "has no free instance for this offer", _CAPACITY),
    Rule(400, QuotaExceeded, "refuses it because of the account's spend limit", _SPEND_LIMIT),
    Rule(400, InsufficientFunds, "refuses it because the account's balance is too low", ("balance is too low",)),
    Rule(400, InvalidSpec, "refuses the combination that was sent"),
    Rule(401, AuthFailed, "does not accept the API key"),
    Rule(402, QuotaExceeded, "refuses it because of the account's spend limit", _SPEND_LIMIT),
    Rule(402, InsufficientFunds, "refuses it because the account's balance is too low"),
    Rule(403, QuotaExceeded, "refuses it because of the account's spend limit", _SPEND_LIMIT),
    Rule(403, NoCapacity, "does not let this account use that GPU pool", ("pool",)),
    Rule(403, AuthFailed, "does not let this API key create pods"),
    Rule(404, InvalidSpec, "does not know the address or something that the request names"),
    Rule(405, InvalidSpec, "does not take a create at this address"),
    Rule(410, Unsupported, "has retired this API"),
    Rule(422, InvalidSpec, "refuses the request as malformed"),
    Rule(429, RateLimited, "asks to slow down"),
)

#: Reads, and actions on a pod that exists. 404 and 409 are judged by the caller, which knows what was wanted.
CALL_OUTCOMES: tuple[Rule, ...] = (
    Rule(400, NoCapacity, "has no free GPU on that host", _CAPACITY),
    Rule(400, QuotaExceeded, "refuses it because of the account's spend limit", _SPEND_LIMIT),
    Rule(400, InvalidSpec, "refuses the call"),
    Rule(401, AuthFailed, "does not accept the API key"),
    Rule(402, InsufficientFunds, "refuses it because the account's balance is too low"),
    Rule(403, QuotaExceeded, "refuses it because of the account's spend limit", _SPEND_LIMIT),
    Rule(403, AuthFailed, "does not let this API key do that"),
    Rule(404, InvalidSpec, "does not know this pod"),
    Rule(409, InvalidSpec, "does not allow this action in the pod's present state"),
    Rule(410, Unsupported, "has retired this API"),
    Rule(422, InvalidSpec, "refuses the call as malformed"),
    Rule(429, RateLimited, "asks to slow down"),
)


def create_error(reply: Reply, secrets: Iterable[str] = ()) -> ProviderError:
    """The error for a create that was not answered 201 with an id. `secrets` are removed from the cloud's text."""
    detail = problem_text(reply.body)
    if reply.status == 400 and not detail:
        # Something between us and the API wrote this: it says nothing about what the API did.
        return OutcomeUnknown(CLOUD, "runpod answered the create with a 400 that is not its own error format")
    rule = _match(CREATE_OUTCOMES, reply.status, detail)
    if rule is None:
        return OutcomeUnknown(CLOUD, f"runpod answered the create with {reply.status}, which does not tell its outcome")
    return _build(rule, reply, clean(detail, secrets))


def call_error(reply: Reply, secrets: Iterable[str] = ()) -> ProviderError:
    """The error for any other call that was not answered as documented."""
    if reply.status >= 500:
        return Unavailable(CLOUD, f"runpod answered {reply.status}")
    detail = problem_text(reply.body)
    rule = _match(CALL_OUTCOMES, reply.status, detail)
    if rule is None:
        return UnexpectedResponse(CLOUD, f"runpod answered {reply.status}, which is not documented for this call")
    return _build(rule, reply, clean(detail, secrets))


def graphql_error(body: Any) -> ProviderError | None:
    """The error inside a GraphQL answer of status 200, or None when it reports none.

    RunPod answers 200 to client errors; `extensions.code` names them.
    """
    errors = body.get("errors") if isinstance(body, dict) else None
    if not errors:
        return None
    first = errors[0] if isinstance(errors, list) and isinstance(errors[0], dict) else {}
    extensions = first.get("extensions")
    code = extensions.get("code") if isinstance(extensions, dict) else None
    if code in ("UNAUTHORIZED", "UNAUTHENTICATED", "FORBIDDEN"):
        return AuthFailed(CLOUD, "runpod does not let this API key read the balance")
    if code == "INTERNAL_SERVER_ERROR":
        return Unavailable(CLOUD, "runpod could not answer the balance query")
    return UnexpectedResponse(CLOUD, "runpod answered the balance query with an error")


def problem_text(body: Any) -> str:
    """`detail` and `errors` of a problem document in one line; "" when the body is not one."""
    if not isinstance(body, dict):
        return ""
    parts = [body.get("detail") or body.get("title")]
    listed = body.get("errors")
    if isinstance(listed, list):
        parts.extend(listed)
    return " ".join(p for p in parts if isinstance(p, str))


def clean(text: str, secrets: Iterable[str]) -> str:
    """The cloud's text without any of `secrets`, printable and at most 200 characters long."""
    for secret in sorted((s for s in secrets if len(s) >= SECRET_MIN), key=len, reverse=True):
        text = text.replace(secret, "[hidden]")
    return "".join(c if c.isprintable() else " " for c in text)[:DETAIL_MAX]


def retry_after_s(reply: Reply) -> float | None:
    """Seconds to wait after a 429: `Retry-After`, or else the longest exhausted window of the `RateLimit` header.

    The header is a list of windows, each `"minute";r=0;t=12`: r requests remain, t seconds until it opens again.
    """
    seconds = _number(reply.headers.get("retry-after", ""))
    if seconds is not None:
        return seconds
    waits = []
    for window in reply.headers.get("ratelimit", "").split(","):
        fields = dict(part.strip().partition("=")[::2] for part in window.split(";")[1:])
        left, opens = _number(fields.get("r", "")), _number(fields.get("t", ""))
        if left == 0 and opens is not None:
            waits.append(opens)
    return max(waits, default=None)


def _match(rules: tuple[Rule, ...], status: int, detail: str) -> Rule | None:
    text = detail.lower()
    for rule in rules:
        if rule.status == status and (not rule.fragments or any(f in text for f in rule.fragments)):
            return rule
    return None


def _build(rule: Rule, reply: Reply, detail: str) -> ProviderError:
    message = f"runpod {rule.says}" + (f": {detail}" if detail else "")
    if issubclass(rule.error, RateLimited):
        return rule.error(CLOUD, message, retry_after_s(reply))
    return rule.error(CLOUD, message)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
