"""What an answer of RunPod means, as tables. The text of an error is looked at here and nowhere else.

REST v2 reports problems as RFC 9457 (`{title, status, detail, errors?}`) without any machine-readable code, so a few
statuses can be told apart by their text only. Matching is on lower-case fragments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from providers.adapter_helpers import clean, part, seconds
from providers.error_table import Row, first, row
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
from providers.http import HttpReply
from providers.rate_limits import used_up_s

CLOUD = "runpod"


CAPACITY = ("no longer any instances", "no instances", "resources to deploy", "not enough free gpus")
#: Neither the status nor the wording of a spend-limit refusal is documented, so it is recognised in each candidate.
SPEND_LIMIT = ("spend limit", "spending limit", "spend rate")

#: The first matching row wins. A status that no row names is an unknown outcome, every 5xx among them.
CREATE_OUTCOMES: tuple[Row, ...] = (
    row(400, NoCapacity, "has no free instance for this offer", *CAPACITY),
    row(400, QuotaExceeded, "refuses it because of the account's spend limit", *SPEND_LIMIT),
    row(400, InsufficientFunds, "refuses it because the account's balance is too low", "balance is too low"),
    row(400, InvalidSpec, "refuses the combination that was sent"),
    row(401, AuthFailed, "does not accept the API key"),
    row(402, QuotaExceeded, "refuses it because of the account's spend limit", *SPEND_LIMIT),
    row(402, InsufficientFunds, "refuses it because the account's balance is too low"),
    row(403, QuotaExceeded, "refuses it because of the account's spend limit", *SPEND_LIMIT),
    row(403, NoCapacity, "does not let this account use that GPU pool", "pool"),
    row(403, AuthFailed, "does not let this API key create pods"),
    row(404, InvalidSpec, "does not know the address or something that the request names"),
    row(405, InvalidSpec, "does not take a create at this address"),
    row(410, Unsupported, "has retired this API"),
    row(422, InvalidSpec, "refuses the request as malformed"),
    row(429, RateLimited, "asks to slow down"),
)

#: Reads, and actions on a pod that exists. 404 and 409 are judged by the caller, which knows what was wanted.
CALL_OUTCOMES: tuple[Row, ...] = (
    row(400, NoCapacity, "has no free GPU on that host", *CAPACITY),
    row(400, QuotaExceeded, "refuses it because of the account's spend limit", *SPEND_LIMIT),
    row(400, InvalidSpec, "refuses the call"),
    row(401, AuthFailed, "does not accept the API key"),
    row(402, InsufficientFunds, "refuses it because the account's balance is too low"),
    row(403, QuotaExceeded, "refuses it because of the account's spend limit", *SPEND_LIMIT),
    row(403, AuthFailed, "does not let this API key do that"),
    row(404, InvalidSpec, "does not know this pod"),
    row(409, InvalidSpec, "does not allow this action in the pod's present state"),
    row(410, Unsupported, "has retired this API"),
    row(422, InvalidSpec, "refuses the call as malformed"),
    row(429, RateLimited, "asks to slow down"),
)


def create_error(reply: HttpReply, secrets: Iterable[str] = ()) -> ProviderError:
    """The error for a create that was not answered 201 with an id. `secrets` are removed from the cloud's text."""
    detail = problem_text(reply.body)
    if reply.status == 400 and not detail:
        # Something between us and the API wrote this: it says nothing about what the API did.
        return OutcomeUnknown(CLOUD, "runpod answered the create with a 400 that is not its own error format")
    found = first(CREATE_OUTCOMES, reply.status, text=detail)
    if found is None:
        return OutcomeUnknown(CLOUD, f"runpod answered the create with {reply.status}, which does not tell its outcome")
    return found.error(CLOUD, retry_after_s(reply), subject="runpod", detail=clean(detail, secrets))


def call_error(reply: HttpReply, secrets: Iterable[str] = ()) -> ProviderError:
    """The error for any other call that was not answered as documented."""
    if reply.status >= 500:
        return Unavailable(CLOUD, f"runpod answered {reply.status}")
    detail = problem_text(reply.body)
    found = first(CALL_OUTCOMES, reply.status, text=detail)
    if found is None:
        return UnexpectedResponse(CLOUD, f"runpod answered {reply.status}, which is not documented for this call")
    return found.error(CLOUD, retry_after_s(reply), subject="runpod", detail=clean(detail, secrets))


def graphql_error(body: Any) -> ProviderError | None:
    """The error inside a GraphQL answer of status 200, or None when it reports none.

    RunPod answers 200 to client errors; `extensions.code` names them.
    """
    errors = body.get("errors") if isinstance(body, dict) else None
    if not errors:
        return None
    code = part(errors[0] if isinstance(errors, list) else None, "extensions").get("code")
    if code in ("UNAUTHORIZED", "UNAUTHENTICATED", "FORBIDDEN"):
        return AuthFailed(CLOUD, "runpod does not let this API key read this")
    if code == "INTERNAL_SERVER_ERROR":
        return Unavailable(CLOUD, "runpod could not answer the query")
    return UnexpectedResponse(CLOUD, "runpod answered the query with an error")


def problem_text(body: Any) -> str:
    """`detail` and `errors` of a problem document in one line; "" when the body is not one."""
    if not isinstance(body, dict):
        return ""
    parts = [body.get("detail") or body.get("title")]
    listed = body.get("errors")
    if isinstance(listed, list):
        parts.extend(listed)
    return " ".join(p for p in parts if isinstance(p, str))


def retry_after_s(reply: HttpReply) -> float | None:
    """Seconds to wait after a 429: `Retry-After`, or else the longest exhausted window of the `RateLimit` header."""
    asked = seconds(reply.headers.get("retry-after", ""))
    return max(used_up_s(reply.headers), default=None) if asked is None else asked
