"""What Vast.ai's answers mean. The only place where the text of its errors is read.

Outcomes of a create (`PUT /asks/{id}/`), first match wins; see `CREATE_OUTCOMES` for the same table as data:

=========================================  ==========================================  ===================
answer                                     read as                                     class
=========================================  ==========================================  ===================
2xx, success, `new_contract` > 0           made                                        the instance
any status, no success, `new_contract` > 0 made but stopped; its disk is billed        OutcomeUnknown
429 in a documented form                   refused before anything happened            RateLimited
401; 403/404 with auth_error               refused                                     AuthFailed
400/404/410 no_such_ask, 3603, 3907        the offer is gone (400 says invalid_args)   NoCapacity
400 insufficient_credit                    refused                                     InsufficientFunds
400/402/403 spend_rate_limit               refused                                     QuotaExceeded
400/403 invalid_args, invalid_price, …     refused                                     InvalidSpec
everything else, 5xx and 2xx without id    nobody knows                                OutcomeUnknown
=========================================  ==========================================  ===================
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
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

CLOUD = "vast"
_AUTH_TEXTS = frozenset({"Invalid user key", "This action requires login."})
_TOO_OFTEN = "too frequent"
_NOT_THERE = frozenset({"no_such_instance", "not_found"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row: these statuses with this error code (None: any) or this text in `msg` (None: any) mean `raises`."""

    statuses: frozenset[int]
    error: str | None
    symbol: str | None
    raises: type[ProviderError]
    says: str


def _row(statuses: set[int], error: str | None, symbol: str | None, raises: type[ProviderError], says: str) -> Outcome:
    return Outcome(frozenset(statuses), error, symbol, raises, says)


_GONE = "the offer is no longer available"
_CREDIT = "the account's credit does not cover it"
_LIMIT = "the account's spend rate limit forbids it"
_REFUSED = "Vast.ai refuses what was sent"
#: The refusals that leave nothing behind. A 200 with success false and no id is read by the same rows.
CREATE_OUTCOMES: tuple[Outcome, ...] = (
    _row({200, 400, 404, 410}, None, "no_such_ask", NoCapacity, _GONE),
    _row({200, 400, 404, 410}, "no_such_ask", None, NoCapacity, _GONE),
    _row({400, 404, 410}, None, "/3603", NoCapacity, _GONE),
    _row({400, 404, 410}, None, "/3907", NoCapacity, _GONE),
    _row({200, 400, 402, 403}, "insufficient_credit", None, InsufficientFunds, _CREDIT),
    _row({200, 400, 402, 403}, "spend_rate_limit", None, QuotaExceeded, _LIMIT),
    _row({400}, "invalid_price", None, InvalidSpec, "Vast.ai refuses the bid"),
    _row({400}, "no_ssh_key_for_vm", None, InvalidSpec, "a virtual machine needs an SSH key in the account"),
    _row({403}, "invalid_args", "/3586", InvalidSpec, "a host account may rent only its own machines"),
    _row({400}, "invalid_args", None, InvalidSpec, _REFUSED),
    _row({400}, "invalid_request", None, InvalidSpec, _REFUSED),
)


def create_error(reply: Reply, now: datetime) -> ProviderError:
    """The error for an answer to a create that did not confirm an instance."""
    body = fields(reply)
    contract = body.get("new_contract")
    if isinstance(contract, int) and contract > 0:
        return OutcomeUnknown(CLOUD, f"Vast.ai reported a failure and made instance {contract} all the same")
    refusal = refused(reply, now)
    if refusal is not None:
        return refusal
    error, text = str(body.get("error") or ""), str(body.get("msg") or "")
    if reply.status != 200 or body.get("success") is False:
        for row in CREATE_OUTCOMES:
            if reply.status in row.statuses and row.error in {None, error} and (row.symbol or "") in text:
                return row.raises(CLOUD, row.says)
    return OutcomeUnknown(CLOUD, f"Vast.ai answered the create with {_named(reply)}, which does not tell the outcome")


def refused(reply: Reply, now: datetime) -> ProviderError | None:
    """A refused key or a documented 429, which any call may meet; None for everything else."""
    body = fields(reply)
    error, text = str(body.get("error") or ""), str(body.get("msg") or "")
    auth = error == "auth_error" or text in _AUTH_TEXTS or "Session expired" in text
    if reply.status == 401 or (reply.status in {403, 404} and auth):
        return AuthFailed(CLOUD, "Vast.ai refuses the API key")
    if reply.status != 429:
        return None
    if error == "search_quota_exceeded":
        return RateLimited(CLOUD, "Vast.ai's daily search quota is used up", _until_reset(reply, now))
    if error == "rate_limit_exceeded" or _TOO_OFTEN in reply.text:
        return RateLimited(CLOUD, "Vast.ai was called too often", _retry_after(reply, body))
    return None


def call_error(reply: Reply, now: datetime) -> ProviderError | None:
    """The error for an answer to anything but a create; None when it is a plain success."""
    refusal = refused(reply, now)
    if refusal is not None:
        return refusal
    if reply.status == 429:
        return RateLimited(CLOUD, "Vast.ai was called too often")
    if reply.status >= 500 or reply.status == 408:
        return Unavailable(CLOUD, f"Vast.ai answered {_named(reply)}")
    if not reply.ok or fields(reply).get("success") is False:
        return UnexpectedResponse(CLOUD, f"Vast.ai answered {_named(reply)}")
    return None


def not_there(reply: Reply) -> bool:
    """True when the instance does not exist: a 404 whose error code says so, never a bare 404."""
    return reply.status == 404 and fields(reply).get("error") in _NOT_THERE


def start_queued(reply: Reply) -> bool:
    """True when a start was accepted into a queue because the GPU is taken."""
    body = fields(reply)
    queued = body.get("error") == "resources_unavailable" or "currently unavailable" in str(body.get("msg") or "")
    return reply.status == 200 and body.get("success") is False and queued


def fields(reply: Reply) -> dict[str, Any]:
    """The body as an object; empty when it is something else."""
    return reply.body if isinstance(reply.body, dict) else {}


def _named(reply: Reply) -> str:
    """Status and error code. A code is taken over only when it looks like one: bodies can hold secrets and markup."""
    error = fields(reply).get("error")
    code = error if isinstance(error, str) and re.fullmatch(r"[a-z][a-z0-9_]{1,40}", error) else None
    return f"{reply.status} {code}" if code else str(reply.status)


def _retry_after(reply: Reply, body: dict[str, Any]) -> float | None:
    given = reply.headers.get("retry-after", body.get("retry_after"))
    return _seconds(given)


def _until_reset(reply: Reply, now: datetime) -> float | None:
    at = _seconds(reply.headers.get("x-ratelimit-reset"))
    return None if at is None else max(at - now.timestamp(), 0.0)


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < float("inf") else None
