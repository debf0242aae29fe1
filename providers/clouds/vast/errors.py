"""What Vast.ai's answers mean. The only place where the text of its errors is read."""

from __future__ import annotations

import re
from datetime import datetime

from providers.adapter_helpers import seconds
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

CLOUD = "vast"
_AUTH_TEXTS = frozenset({"Invalid user key", "This action requires login."})
_TOO_OFTEN = "too frequent"
_NOT_THERE = frozenset({"no_such_instance", "not_found"})


_GONE = "the offer is no longer available"
_CREDIT = "the account's credit does not cover it"
_LIMIT = "the account's spend rate limit forbids it"
_REFUSED = "Vast.ai refuses what was sent"
#: The refusals that leave nothing behind. A 200 with success false and no id is read by the same rows.
CREATE_OUTCOMES: tuple[Row, ...] = (
    row({200, 400, 404, 410}, NoCapacity, _GONE, "no_such_ask"),
    row({200, 400, 404, 410}, NoCapacity, _GONE, code="no_such_ask"),
    row({400, 404, 410}, NoCapacity, _GONE, "/3603"),
    row({400, 404, 410}, NoCapacity, _GONE, "/3907"),
    row({200, 400, 402, 403}, InsufficientFunds, _CREDIT, code="insufficient_credit"),
    row({200, 400, 402, 403}, QuotaExceeded, _LIMIT, code="spend_rate_limit"),
    row(400, InvalidSpec, "Vast.ai refuses the bid", code="invalid_price"),
    row(400, InvalidSpec, "a virtual machine needs an SSH key in the account", code="no_ssh_key_for_vm"),
    row(403, InvalidSpec, "a host account may rent only its own machines", "/3586", code="invalid_args"),
    row(400, InvalidSpec, _REFUSED, code="invalid_args"),
    row(400, InvalidSpec, _REFUSED, code="invalid_request"),
)


def create_error(reply: HttpReply, now: datetime) -> ProviderError:
    """The error for an answer to a create that did not confirm an instance."""
    body = reply.fields
    contract = body.get("new_contract")
    if isinstance(contract, int) and contract > 0:
        return OutcomeUnknown(CLOUD, f"Vast.ai reported a failure and made instance {contract} all the same")
    refusal = refused(reply, now)
    if refusal is not None:
        return refusal
    found = first(CREATE_OUTCOMES, reply.status, code=str(body.get("error") or ""), text=str(body.get("msg") or ""))
    if found is not None and (reply.status != 200 or body.get("success") is False):
        return found.error(CLOUD, None)
    return OutcomeUnknown(CLOUD, f"Vast.ai answered the create with {_named(reply)}, which does not tell the outcome")


def refused(reply: HttpReply, now: datetime) -> ProviderError | None:
    """A refused key or a documented 429, which any call may meet; None for everything else."""
    body = reply.fields
    error, text = str(body.get("error") or ""), str(body.get("msg") or "")
    auth = error == "auth_error" or text in _AUTH_TEXTS or "Session expired" in text
    if reply.status == 401 or (reply.status in {403, 404} and auth):
        return AuthFailed(CLOUD, "Vast.ai refuses the API key")
    if reply.status != 429:
        return None
    if error == "search_quota_exceeded":
        at_s = seconds(reply.headers.get("x-ratelimit-reset"))
        wait_s = None if at_s is None else max(at_s - now.timestamp(), 0.0)
        return RateLimited(CLOUD, "Vast.ai's daily search quota is used up", wait_s)
    if error == "rate_limit_exceeded" or _TOO_OFTEN in reply.text:
        return RateLimited(
            CLOUD, "Vast.ai was called too often", seconds(reply.headers.get("retry-after", body.get("retry_after")))
        )
    return None


def call_error(reply: HttpReply, now: datetime) -> ProviderError | None:
    """The error for an answer to anything but a create; None when it is a plain success."""
    refusal = refused(reply, now)
    if refusal is not None:
        return refusal
    if reply.status == 429:
        return RateLimited(CLOUD, "Vast.ai was called too often")
    if reply.status >= 500 or reply.status == 408:
        return Unavailable(CLOUD, f"Vast.ai answered {_named(reply)}")
    if not reply.ok or reply.fields.get("success") is False:
        return UnexpectedResponse(CLOUD, f"Vast.ai answered {_named(reply)}")
    return None


def not_there(reply: HttpReply) -> bool:
    """True when the instance does not exist: a 404 whose error code says so, never a bare 404."""
    return reply.status == 404 and reply.fields.get("error") in _NOT_THERE


def start_queued(reply: HttpReply) -> bool:
    """True when a start was accepted into a queue because the GPU is taken."""
    body = reply.fields
    queued = body.get("error") == "resources_unavailable" or "currently unavailable" in str(body.get("msg") or "")
    return reply.status == 200 and body.get("success") is False and queued


def _named(reply: HttpReply) -> str:
    """Status and error code. A code is taken over only when it looks like one: bodies can hold secrets and markup."""
    error = reply.fields.get("error")
    code = error if isinstance(error, str) and re.fullmatch(r"[a-z][a-z0-9_]{1,40}", error) else None
    return f"{reply.status} {code}" if code else str(reply.status)
