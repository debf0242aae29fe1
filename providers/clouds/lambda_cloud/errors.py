"""What Lambda's answers mean, by status and error code. Only `error.code` is stable there, so no text is read.

Codes and statuses are those of the OpenAPI document 1.10.0. A 429 is described in its introduction and declared
nowhere, so its body may be anything; 5xx and `provider/…` codes are never declared and do occur.
"""

from __future__ import annotations

import re
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
)
from providers.http import Reply

CLOUD = "lambda"
CODE = re.compile(r"[a-z][a-z/-]{1,80}", re.ASCII)
LAUNCH = "instance-operations/launch/"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row: one of these statuses with this error code (None: whatever the body is) means `raises`."""

    statuses: frozenset[int]
    code: str | None
    raises: type[ProviderError]
    says: str


def _row(statuses: set[int], code: str | None, raises: type[ProviderError], says: str) -> Outcome:
    return Outcome(frozenset(statuses), code, raises, says)


_KEY = "Lambda refuses the API key"
_MAY_NOT = "Lambda does not let this API key do that"
_INACTIVE = "the Lambda account is inactive: verify its e-mail address and its payment method"
_SLOW = "Lambda was called too often"
_REFUSED = "Lambda refuses what was sent"
_MISSING = "something that the launch names (type, SSH key or file system) does not exist"

#: The answers to a launch that leave nothing behind; the first matching row counts. All others are unknown: every
#: 5xx, every `provider/…` code, a 409, a redirect, and an error status whose body is not Lambda's own.
CREATE_OUTCOMES: tuple[Outcome, ...] = (
    _row({429}, None, RateLimited, _SLOW),
    _row({401}, None, AuthFailed, _KEY),
    _row({400}, f"{LAUNCH}insufficient-capacity", NoCapacity, "Lambda has no free machine of this type there"),
    _row({400}, f"{LAUNCH}file-system-in-wrong-region", InvalidSpec, "the file system is in another region"),
    _row({400}, "global/quota-exceeded", QuotaExceeded, "the account's quota at Lambda is used up"),
    _row({400, 403}, "global/account-inactive", InsufficientFunds, _INACTIVE),
    _row({400, 403}, "global/invalid-address", InsufficientFunds, "Lambda refuses the account's billing address"),
    _row({403}, "global/forbidden", AuthFailed, _MAY_NOT),
    _row({403}, "global/invalid-api-key", AuthFailed, _KEY),
    _row({400, 422}, "global/invalid-parameters", InvalidSpec, _REFUSED),
    _row({400, 404}, "global/object-does-not-exist", InvalidSpec, _MISSING),
    _row({404}, "global/not-found", InvalidSpec, "Lambda does not know the address of the launch"),
)

#: The same for every other call. What is absent here is `Unavailable` for 5xx, else `UnexpectedResponse`.
CALL_OUTCOMES: tuple[Outcome, ...] = (
    _row({429}, None, RateLimited, _SLOW),
    _row({401}, None, AuthFailed, _KEY),
    _row({400, 403}, "global/account-inactive", AuthFailed, _INACTIVE),
    _row({403}, None, AuthFailed, _MAY_NOT),
    _row({400, 422}, "global/invalid-parameters", InvalidSpec, _REFUSED),
    _row({409}, "global/conflict", Unavailable, "Lambda is busy with another action on this instance"),
)


def create_error(reply: Reply) -> ProviderError:
    """The error for an answer to a launch that did not confirm exactly one instance."""
    row = _match(CREATE_OUTCOMES, reply)
    if row is None or reply.ok:
        return OutcomeUnknown(
            CLOUD, f"Lambda answered the launch with {_named(reply)}, which does not tell the outcome"
        )
    return _build(row, reply)


def call_error(reply: Reply) -> ProviderError | None:
    """The error for an answer to anything but a launch; None when it is a plain success."""
    body = fields(reply)
    if reply.ok and "error" not in body:
        return None
    row = _match(CALL_OUTCOMES, reply)
    if row is not None:
        return _build(row, reply)
    if reply.status >= 500 or reply.status == 408 or error_code(reply).startswith("provider/"):
        return Unavailable(CLOUD, f"Lambda answered {_named(reply)}")
    return UnexpectedResponse(CLOUD, f"Lambda answered {_named(reply)}")


def not_there(reply: Reply) -> bool:
    """True when the answer says that the object does not exist. A bare 404 may come from anything in between."""
    return reply.status in {400, 404} and error_code(reply) == "global/object-does-not-exist"


def duplicate(reply: Reply) -> bool:
    """True when the name was taken already."""
    return reply.status in {400, 409} and error_code(reply) == "global/duplicate"


def error_code(reply: Reply) -> str:
    """`error.code` when it looks like one, else "": bodies can hold secrets and markup."""
    error = fields(reply).get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) and CODE.fullmatch(code) else ""


def fields(reply: Reply) -> dict[str, Any]:
    """The body as an object; empty when it is something else."""
    return reply.body if isinstance(reply.body, dict) else {}


def _match(rows: tuple[Outcome, ...], reply: Reply) -> Outcome | None:
    code = error_code(reply)
    return next((row for row in rows if reply.status in row.statuses and row.code in {None, code}), None)


def _build(row: Outcome, reply: Reply) -> ProviderError:
    if issubclass(row.raises, RateLimited):
        return row.raises(CLOUD, row.says, _seconds(reply.headers.get("retry-after")))
    return row.raises(CLOUD, row.says)


def _named(reply: Reply) -> str:
    code = error_code(reply)
    return f"{reply.status} {code}" if code else str(reply.status)


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
