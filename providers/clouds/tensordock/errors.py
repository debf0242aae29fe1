"""What TensorDock's answers mean. The only place where the text of its errors is read.

An error may come with a 4xx or inside a 200: `{"status": 400, "error": "No available nodes found"}`. There are no
error codes, so a few sentences have to be told apart; matching is on lower-case fragments.
"""

from __future__ import annotations

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

CLOUD = "tensordock"
#: Stands before the texts of the validator's form, [{code, message, path}, …], which is a refusal whatever they say.
VALIDATOR = "validation: "


_STOCK = (
    "no available nodes", "hostnode unavailable", "no available public ip", "out of stock", "insufficient capacity",
    "not enough capacity",
)  # fmt: skip
#: The sentence of a refusal for lack of money is not documented; the rule (at least $1 before a deploy) is.
_MONEY = ("balance", "insufficient fund", "insufficient credit", "not enough credit", "add funds")
_QUOTA = ("quota", "limit reached", "maximum number of")
_SHAPE = ("ratio limit", "must be forwarded", "must be even", "at least 100", "ssh key", VALIDATOR)
_REFUSED = "TensorDock refuses what was sent"
_KEY = "TensorDock refuses the API token"

#: The answers to a create that leave nothing behind; the first matching row counts. All others are unknown, among
#: them every 5xx and "virtual machine deployment failed": a deploy can fail after an instance was made.
CREATE_OUTCOMES: tuple[Row, ...] = (
    row(429, RateLimited, "TensorDock was called too often"),
    row(401, AuthFailed, _KEY),
    row({400, 404, 409, 422}, NoCapacity, "TensorDock has no free node for this offer", *_STOCK),
    row({400, 402, 403, 422}, InsufficientFunds, "the account's balance does not cover it", *_MONEY),
    row(402, InsufficientFunds, "the account's balance does not cover it"),
    row({400, 403, 422}, QuotaExceeded, "a limit of the account forbids it", *_QUOTA),
    row(403, AuthFailed, "TensorDock does not let this API token create machines"),
    row({400, 422}, InvalidSpec, _REFUSED, *_SHAPE),
    row(422, InvalidSpec, _REFUSED),
)

#: The same for every other call. What is absent here is `Unavailable` for 5xx, else `UnexpectedResponse`.
CALL_OUTCOMES: tuple[Row, ...] = (
    row(429, RateLimited, "TensorDock was called too often"),
    row(401, AuthFailed, _KEY),
    row({400, 404, 409, 422}, NoCapacity, "the GPU of this machine was taken by somebody else", *_STOCK),
    row({400, 402, 403, 422}, InsufficientFunds, "the account's balance does not cover it", *_MONEY),
    row(403, AuthFailed, "TensorDock does not let this API token do that"),
)


def create_error(reply: HttpReply) -> ProviderError:
    """The error for an answer to a create that did not confirm an instance."""
    status, text = meaning(reply)
    if made_id(reply) is not None:
        return OutcomeUnknown(CLOUD, "TensorDock reported a failure and named an instance all the same")
    found = first(CREATE_OUTCOMES, status, text=text)
    if found is None:
        return OutcomeUnknown(CLOUD, f"TensorDock answered the create with {status}, which does not tell the outcome")
    return found.error(CLOUD, seconds(reply.headers.get("retry-after")))


def call_error(reply: HttpReply) -> ProviderError | None:
    """The error for an answer to anything but a create; None when it is a plain success."""
    status, text = meaning(reply)
    if 200 <= status < 300:
        return None
    found = first(CALL_OUTCOMES, status, text=text)
    if found is not None:
        return found.error(CLOUD, seconds(reply.headers.get("retry-after")))
    if status >= 500 or status == 408:
        return Unavailable(CLOUD, f"TensorDock answered {status}")
    return UnexpectedResponse(CLOUD, f"TensorDock answered {status}")


def not_there(reply: HttpReply) -> bool:
    """True when the instance does not exist: 404, as a status or inside a 200."""
    return meaning(reply)[0] == 404


def meaning(reply: HttpReply) -> tuple[int, str]:
    """The status that an answer really has, and its error text in lower case ("" for none).

    Inside a 2xx, `status` as a number of at least 400 counts, and so does an `error` without any data (as 400, the
    only one that was seen).
    """
    body = reply.body
    if isinstance(body, list):
        rows = [row for row in body if isinstance(row, dict) and "message" in row and "path" in row]
        if not rows or len(rows) != len(body):
            return reply.status, ""
        # With a 2xx it is a refusal too, never a list of anything.
        texts = " ".join(str(row["message"]) for row in rows)
        return (400 if reply.ok else reply.status), VALIDATOR + texts.lower()
    if not isinstance(body, dict):
        return reply.status, ""
    error = body.get("error") or body.get("message")
    text = error if isinstance(error, str) else " ".join(map(str, error.values())) if isinstance(error, dict) else ""
    told = body.get("status")
    if reply.ok and isinstance(told, int) and not isinstance(told, bool) and told >= 400:
        return told, text.lower()
    if reply.ok and body.get("error") and "data" not in body and "id" not in body:
        return 400, text.lower()
    return reply.status, text.lower()


def made_id(reply: HttpReply) -> str | None:
    """The id of the instance that an answer names, wrapped in `data` or not."""
    body = reply.body
    found = part(body.get("data", body) if isinstance(body, dict) else None).get("id")
    return found if isinstance(found, str) and found else None
