"""What Lambda's answers mean, by status and error code. Only `error.code` is stable there, so no text is read.

Codes and statuses are those of the OpenAPI document 1.10.0. A 429 is described in its introduction and declared
nowhere, so its body may be anything; 5xx and `provider/…` codes are never declared and do occur.
"""

from __future__ import annotations

import re

from providers.adapter_helpers import part, seconds
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
)
from providers.http import HttpReply

CLOUD = "lambda"
CODE = re.compile(r"[a-z][a-z/-]{1,80}", re.ASCII)
LAUNCH = "instance-operations/launch/"


_KEY = "Lambda refuses the API key"
_MAY_NOT = "Lambda does not let this API key do that"
_INACTIVE = "the Lambda account is inactive: verify its e-mail address and its payment method"
_SLOW = "Lambda was called too often"
_REFUSED = "Lambda refuses what was sent"
_MISSING = "something that the launch names (type, SSH key or file system) does not exist"

#: The answers to a launch that leave nothing behind; the first matching row counts. All others are unknown: every
#: 5xx, every `provider/…` code, a 409, a redirect, and an error status whose body is not Lambda's own.
CREATE_OUTCOMES: tuple[Row, ...] = (
    row(429, RateLimited, _SLOW),
    row(401, AuthFailed, _KEY),
    row(400, NoCapacity, "Lambda has no free machine of this type there", code=f"{LAUNCH}insufficient-capacity"),
    row(400, InvalidSpec, "the file system is in another region", code=f"{LAUNCH}file-system-in-wrong-region"),
    row(400, QuotaExceeded, "the account's quota at Lambda is used up", code="global/quota-exceeded"),
    row({400, 403}, InsufficientFunds, _INACTIVE, code="global/account-inactive"),
    row({400, 403}, InsufficientFunds, "Lambda refuses the account's billing address", code="global/invalid-address"),
    row(403, AuthFailed, _MAY_NOT, code="global/forbidden"),
    row(403, AuthFailed, _KEY, code="global/invalid-api-key"),
    row({400, 422}, InvalidSpec, _REFUSED, code="global/invalid-parameters"),
    row({400, 404}, InvalidSpec, _MISSING, code="global/object-does-not-exist"),
    row(404, InvalidSpec, "Lambda does not know the address of the launch", code="global/not-found"),
)

#: The same for every other call. What is absent here is `Unavailable` for 5xx, else `UnexpectedResponse`.
CALL_OUTCOMES: tuple[Row, ...] = (
    row(429, RateLimited, _SLOW),
    row(401, AuthFailed, _KEY),
    row({400, 403}, AuthFailed, _INACTIVE, code="global/account-inactive"),
    row(403, AuthFailed, _MAY_NOT),
    row({400, 422}, InvalidSpec, _REFUSED, code="global/invalid-parameters"),
    row(409, Unavailable, "Lambda is busy with another action on this instance", code="global/conflict"),
)


def create_error(reply: HttpReply) -> ProviderError:
    """The error for an answer to a launch that did not confirm exactly one instance."""
    found = first(CREATE_OUTCOMES, reply.status, code=error_code(reply))
    if found is None or reply.ok:
        return OutcomeUnknown(
            CLOUD, f"Lambda answered the launch with {_named(reply)}, which does not tell the outcome"
        )
    return found.error(CLOUD, seconds(reply.headers.get("retry-after")))


def call_error(reply: HttpReply) -> ProviderError | None:
    """The error for an answer to anything but a launch; None when it is a plain success."""
    if reply.ok and "error" not in reply.fields:
        return None
    code = error_code(reply)
    found = first(CALL_OUTCOMES, reply.status, code=code)
    if found is not None:
        return found.error(CLOUD, seconds(reply.headers.get("retry-after")))
    if reply.status >= 500 or reply.status == 408 or code.startswith("provider/"):
        return Unavailable(CLOUD, f"Lambda answered {_named(reply)}")
    return UnexpectedResponse(CLOUD, f"Lambda answered {_named(reply)}")


def not_there(reply: HttpReply) -> bool:
    """True when the answer says that the object does not exist. A bare 404 may come from anything in between."""
    return reply.status in {400, 404} and error_code(reply) == "global/object-does-not-exist"


def key_gone(reply: HttpReply) -> bool:
    """True when an SSH key is not there (any more): the document says `global/not-found` for keys."""
    return not_there(reply) or (reply.status == 404 and error_code(reply) == "global/not-found")


def duplicate(reply: HttpReply) -> bool:
    """True when the name was taken already."""
    return reply.status in {400, 409} and error_code(reply) == "global/duplicate"


def error_code(reply: HttpReply) -> str:
    """`error.code` when it looks like one, else "": bodies can hold secrets and markup."""
    code = part(reply.fields, "error").get("code")
    return code if isinstance(code, str) and CODE.fullmatch(code) else ""


def _named(reply: HttpReply) -> str:
    code = error_code(reply)
    return f"{reply.status} {code}" if code else str(reply.status)
